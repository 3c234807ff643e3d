"""Why compile caches missed, of real compilations: an empty cache, a changed config, a bypass.

A product of matrices needs no C++ compiler, so these are short.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from support import slots
from support.trainings import run
from warmwatch_monitor.commands.cli import cli

pytestmark = pytest.mark.long

SECRET = "a patient"
BODY = f"""
import torch._inductor.config as config
def product(x): return torch.mm(x, x)
# {SECRET}
CHANGE
torch.compile(product)(torch.ones(4, 4))
"""


def trained(records: Path, cache: Path, change: str = "", **env: str) -> None:
    known = {"WARMWATCH_RUN": "gpt2", "TORCHINDUCTOR_CACHE_DIR": str(cache), **env}
    # what a Python has loaded before it compiles is in some keys
    run(records, BODY.replace("CHANGE", change), env=known, fresh=True)


def report_lines(records: Path) -> list[str]:
    done = CliRunner().invoke(cli, ["status", "--misses", "--dir", str(records)])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_of_two_ranks_the_one_with_the_empty_cache_is_named(records: Path, tmp_path: Path) -> None:
    trained(records, tmp_path / "full", WARMWATCH_RUN="before")
    for rank, cache in enumerate(("full", "empty")):
        trained(records, tmp_path / cache, RANK=str(rank), WORLD_SIZE="2")
    lines = [line for line in report_lines(records) if line.startswith("gpt2 rank")]
    assert {line.partition(",")[0] for line in lines} == {"gpt2 rank 1"}
    hit = "its key is rank 0's, which hit: it looked earlier, or into another or an emptied cache"
    assert any(line.endswith(f"{hit} directory") for line in lines), lines


def test_a_changed_config_between_two_runs_is_named(records: Path, tmp_path: Path) -> None:
    trained(records, tmp_path / "cache")
    first = report_lines(records)
    assert all("nothing to compare it with" in line for line in first), first
    assert first
    trained(records, tmp_path / "cache", "config.epilogue_fusion = False")
    lines = report_lines(records)  # of some versions AOTAutograd's cache tells the same
    assert any("(Inductor): missed: 1 of " in line for line in lines), lines
    differs = "parts of its key differs from the run's before: inductor config epilogue_fusion"
    assert all(line.endswith(differs) for line in lines), lines
    trained(records, tmp_path / "another cache", "config.epilogue_fusion = False")
    lines = report_lines(records)
    missed = "missed: its key is the run's before, which missed too"  # and no more is recorded
    assert any(line.endswith(missed) for line in lines), lines


def test_a_bypass_is_reported_with_its_reason(records: Path, tmp_path: Path) -> None:
    trained(records, tmp_path / "cache", "config.post_grad_custom_pre_pass = lambda graph: None")
    lines = report_lines(records)
    assert any(": bypassed: " in line and "custom" in line for line in lines), lines


def test_only_names_and_hashes_of_a_key_are_recorded(records: Path, tmp_path: Path) -> None:
    from warmwatch_monitor.commands.cache_misses import lookups_in

    trained(records, tmp_path / "cache")
    folder = slots.only(records)
    hashes = next(one.hashes for one in lookups_in(str(folder)) if one.hashes)
    assert {"gm", "torch_version", "example_inputs[0]"} <= set(hashes)
    assert all(len(short) <= 6 and short.isalnum() for short in hashes.values())
    reported = [event for event in slots.events(folder) if event["event"] == "cache"]
    assert {key for event in reported for key in event} <= {
        *("t", "event", "cache", "verdict", "id", "key", "reason", "parts", "whole", "packed")
    }
    words = json.dumps([reported, [*hashes]])
    assert SECRET not in words
    assert "primals" not in words  # the graph's own code
    assert "def " not in words
    assert str(tmp_path) not in words
