"""The page on other tools: its snippet for TensorBoard runs, and every name in it exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from support import builders as b
from support.records import environment, held, warm, write_record
from support.trainings import ROOT
from warmwatch_monitor.figures.machine import ExportHealth
from warmwatch_monitor.metrics import families

PAGE = (ROOT / "docs" / "how-to" / "other-tools.md").read_text()


def snippet(heading: str) -> str:
    """The Python under a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    (found,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    code: str = found
    return code


@pytest.mark.long
def test_tensorboard_shows_the_end_of_the_warm_up_and_a_curve(
    records: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(snippet("TensorBoard"))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment(WARMWATCH_DIR=str(records)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = EventAccumulator(str(tmp_path / "runs" / "gpt2")).Reload()
    curve = {event.step: event.value for event in events.Scalars("warmwatch/warm")}
    assert curve == {step: float(step > 3) for step in range(1, 11)}
    (note,) = events.Tensors("warmwatch/text_summary")
    assert note.step == 4
    assert note.tensor_proto.string_val[0].startswith(b"warm: ")


def test_a_program_with_its_own_registry_serves_the_series_of_a_record(records: Path) -> None:
    slot = warm()
    with held(write_record(records, slot)):
        code = "\n".join(
            [
                snippet("A registry of your own (prometheus_client)"),
                "import time",
                "from prometheus_client import generate_latest",
                "while not poller.latest().runs:",
                "    time.sleep(0.02)",
                "print(generate_latest(REGISTRY).decode())",
            ]
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(WARMWATCH_DIR=str(records)),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert f'warmwatch_steps_total{{rank="0",run="gpt2"}} {float(slot.steps.steps)}' in done.stdout
    assert "python_info{" in done.stdout, "beside those of the program itself"


def test_every_named_metric_exists() -> None:
    exports = (ExportHealth(export="otlp", up=True, last_success=b.EPOCH),)
    snapshot = b.snapshot(b.view(b.WARM), exports=exports)
    known = {family.name for family in families(snapshot, "0.1.0")}
    named = set(re.findall(r"\b(warmwatch_[a-z_]+[a-z])\b", PAGE)) - {
        "warmwatch_",
        "warmwatch_monitor",
    }
    assert named >= {"warmwatch_export_up", "warmwatch_step_seconds", "warmwatch_warm"}
    assert named <= known
    group = re.search(r"warmwatch\\.warmwatch_\(([a-z_|]+)\)", snippet("Weights & Biases"))
    assert group
    assert {f"warmwatch_{name}" for name in group[1].split("|")} <= known
