"""The scenarios: what each declares, and how one is run with the agent and without it.

A scenario is a file of ``tests/process/scenarios``; its docstring describes it, and its
literal ``EXPECT`` the expected results; ``on`` in it lists what differs by PyTorch version. It is
run twice: with the agent and a poller, then without the agent and with PyTorch's structured trace.
PyTorch's caches are cold for both. The output of the C++ compiler is cached (``gxx.py``), except
with the agent in a scenario that declares ``cold``.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import gxx, requested_polls, slots, truth
from support.filesystems import MEMORY
from support.poller import Poller, Sample
from support.torch_versions import VERSION
from support.trainings import ROOT, Training, environment, started
from warmwatch.shared import record

FOLDER = ROOT / "tests" / "process" / "scenarios"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario and what it declares.

    Attributes:
        states: those a monitor sees, in order; ``compiling`` and ``warming`` alternate while the
            compiler comes back before the first warm-up is over, and stand here once each.
        categories: of each recompile, in order. beside: of each by another compiler than PyTorch's.
        fallbacks, failures: how many. breaks: at least.
        uncounted_breaks: those that PyTorch's trace shows and its own counter leaves out.
        uncompiled_graphs: those that the trace shows and whose compilation failed.
        unseen_steps: how many the agent cannot tell from others. late_steps: by how many each
            warm-up is noticed late, where the agent's step is not the scenario's iteration.
        conditions: those of its steps, in addition to what follows from its compilations.
        in_vain: it calls ``torch.compile``, and nothing is ever compiled.
        cold: with the agent it runs without the cache of the C++ compiler.
        warm_cache: run once beforehand, so that the caches are full.
        env: environment variables that it needs.
        long: left to `make test-long`, for other scenarios meet each of its kinds of event as well.
        ranks: processes that train together, each with a GPU of its own.
        traced: PyTorch records some of its compilations only in its trace.
        limits: in words, each difference from the truth that the numbers above allow for.
        lacks: why this PyTorch cannot run it at all; empty where it can.
        cannot_know: check -> why PyTorch's own account cannot decide it; the check is left out.
    """

    name: str
    path: Path
    about: str
    states: tuple[str, ...]
    categories: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    breaks: int = 0
    uncounted_breaks: int = 0
    uncompiled_graphs: int = 0
    unseen_steps: int = 0
    late_steps: tuple[int, ...] = ()
    fallbacks: int = 0
    failures: int = 0
    conditions: tuple[str, ...] = ()
    in_vain: bool = False
    cold: bool = False
    warm_cache: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    long: bool = False
    ranks: int = 1
    traced: bool = False
    limits: str = ""
    lacks: str = ""
    cannot_know: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A run without the agent: its account, its trace, and what it printed."""

    account: dict[str, Any]
    trace: dict[str, Any]
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A run with the agent: its account, its record, and the monitor's judgements."""

    account: dict[str, Any]
    output: str
    slot: record.Slot
    events: list[dict[str, Any]]
    samples: list[Sample]
    trace: dict[str, Any] | None


def every() -> list[Scenario]:
    """All scenarios, by name."""
    return [declared(path) for path in sorted(FOLDER.glob("[a-z]*.py"))]


def declared(path: Path) -> Scenario:
    """The expectations in a scenario's file, read without running it."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPECT":
            expect = ast.literal_eval(node.value)
            expect |= expect.pop("on", {}).get(VERSION, {})
            expect["states"] = tuple(expect["states"].split())
            for key in ("categories", "beside", "conditions"):
                expect[key] = tuple(expect.get(key, "").split())
            about = " ".join((ast.get_docstring(tree) or "").split())
            return Scenario(name=path.stem, path=path, about=about, **expect)
    raise ValueError(f"{path} declares no EXPECT")


def run(scenario: Scenario, folder: Path) -> tuple[Watched, Reference]:
    """Run it both ways, in two empty folders of ``folder``."""
    watched = _watched(scenario, _prepared(scenario, folder / "with"))
    alone = _prepared(scenario, folder / "without")
    trace = alone / "trace"
    account, output = trained(scenario, alone, "without", TORCH_TRACE=str(trace))
    return watched, Reference(
        account=account, trace=truth.traced(trace, account["pid"]), output=output
    )


def _prepared(scenario: Scenario, folder: Path) -> Path:
    """A folder with the caches that the scenario begins with: in most, none."""
    folder.mkdir(parents=True)
    if scenario.warm_cache:
        trained(scenario, folder, "before")
    return folder


def _watched(scenario: Scenario, folder: Path) -> Watched:
    """The run with the agent. Its record is in memory, where a poll reads a store immediately."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="warmwatch-test-") as place:
        records = folder / "records"
        records.symlink_to(place)
        return _looked_at(scenario, folder, records)


def _looked_at(scenario: Scenario, folder: Path, records: Path) -> Watched:
    trace = folder / "trace"
    env = {"TORCH_TRACE": str(trace)} if scenario.traced else {}
    env |= {gxx.COLD: "1"} if scenario.cold else {}
    with Poller(records, folder) as poller:
        env[requested_polls.PIPES] = str(folder)
        account, output = trained(scenario, folder, "with", SCENARIO_AGENT="1", **env)
    found = slots.only(records)
    return Watched(
        account=account,
        output=output,
        slot=slots.read(found),
        events=slots.events(found),
        samples=poller.samples,
        trace=truth.traced(trace, account["pid"]) if scenario.traced else None,
    )


def trained(scenario: Scenario, folder: Path, how: str, **env: str) -> tuple[dict[str, Any], str]:
    """Its account, and what it printed with the moments taken out."""
    account, errors = folder / f"{how}.json", folder / f"{how}.stderr"
    more = {"SCENARIO_ACCOUNT": str(account), **scenario.env, **env}
    variables = environment(folder / "records", **more)
    foreign = scenario.path.parent != FOLDER  # those of tests/gpu, which start CUDA
    options = {"fresh": foreign, "plain": scenario.cold}  # both runs the same: imports may warn
    process = started(scenario.path, folder, variables, errors, **options)
    training = Training(process, errors)
    try:
        training.reach("done")
        code = training.wait()
        assert code == 0, training.stderr
    finally:
        process.kill()
        training.wait()
    printed = "".join(training.output) + training.stderr
    return json.loads(account.read_text()), timeless(printed)


_MOMENTS = (
    (re.compile(r"^(\[rank\d+\]:)?([VIWE])\d{4} [\d:.]+ \d+ ", re.MULTILINE), r"\1\2 "),
    (re.compile(r"\d{4}-\d\d-\d\d [\d:]+ \d+:\d+"), ""),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\d{7,}"), "#"),
)


def timeless(text: str) -> str:
    """Text without times, process ids and addresses."""
    for pattern, instead in _MOMENTS:
        text = pattern.sub(instead, text)
    return text
