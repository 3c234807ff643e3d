"""Runs a training with the agent or without it, and returns what was seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from guest.headers import Training
from support import slots, trainings
from support.filesystems import MEMORY
from support.forked import Forked

BOOT = trainings.ROOT / "agent" / "warmwatch" / "_boot"
OBSERVING = Path(__file__).with_name("observing.py")
ATTACH = ("warmwatch.lifecycle.launched",)
# what PyTorch reports by itself, at INFO; the trainings that set it themselves test the rest
LOGS = "all,recompiles,graph_breaks,guards,graph_code"


@dataclass(frozen=True, slots=True)
class Seen:
    """One run. ``sections``: lines by subject, for each rank. ``steps``: those of each record."""

    folder: Path
    exits: tuple[int | str, ...]
    sections: Mapping[str, Sequence[str]]
    steps: tuple[int, ...]
    errors: tuple[str, ...]
    pids: tuple[int, ...]


def run(training: Training, folder: Path, *, agent: bool, attach: Sequence[str] = ATTACH) -> Seen:
    """Run it once. ``attach``: the modules that a fork imports to attach the agent."""
    folder.mkdir(parents=True)
    records = folder / "records"
    # in memory, as usual: each step is visible immediately
    records.symlink_to(tempfile.mkdtemp(dir=MEMORY, prefix="warmwatch-test-"))
    processes = [
        _start(training, folder, records, rank, attach if agent else ())
        for rank in range(training.ranks)
    ]
    exits: list[int | str] = []
    sections: dict[str, list[str]] = {}
    try:
        for rank, process in enumerate(processes):
            place = folder / f"rank{rank}"
            prefix = f"rank {rank}: " if training.ranks > 1 else ""
            try:
                written, _ = process.communicate(timeout=training.seconds)
                exits.append(process.wait())
            except subprocess.TimeoutExpired:
                written = ""
                exits.append(f"still ran after {training.seconds:.0f} s")
            sections[f"{prefix}exit code"] = [str(exits[-1])]
            sections[f"{prefix}standard output"] = written.splitlines()
            errors = (place / "errors").read_text(errors="replace")
            sections[f"{prefix}logs, warnings and errors"] = errors.splitlines()
            report = place / "report.json"
            if not report.exists():
                sections[f"{prefix}no report"] = [""]
            else:
                for name, lines in json.loads(report.read_text()).items():
                    sections[prefix + name] = lines
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = slots.folders(records)
    steps = tuple(sorted(filter(None, (slots.read(one).steps.steps for one in found))))
    faults = tuple(line for one in found for line in slots.errors(one))
    shutil.rmtree(records.resolve(), ignore_errors=True)
    pids = tuple(process.pid for process in processes)
    return Seen(folder, tuple(exits), sections, steps, faults, pids)


def _start(
    training: Training, folder: Path, records: Path, rank: int, attach: Sequence[str]
) -> subprocess.Popen[str] | Forked:
    place = folder / f"rank{rank}"
    place.mkdir()
    # a fresh Python attaches by itself
    order = {
        "training": str(training.path),
        "agent": str(BOOT),
        "attach": [] if training.fresh else list(attach),
    }
    (place / "guest.json").write_text(json.dumps(order))
    own = {"TORCH_LOGS": LOGS, **dict(training.environment)}
    own = {name: value for name, value in own.items() if value}
    if training.fresh:
        own["PYTHONHASHSEED"] = "0"  # a fork has that of the process it was forked from
    if training.ranks > 1:
        own |= {"RANK": str(rank), "WORLD_SIZE": str(training.ranks)}
    environment = trainings.environment(records, **own)
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    if training.fresh and attach:
        paths = [str(BOOT), environment["PYTHONPATH"]]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return trainings.started(
        OBSERVING,
        place,
        environment,
        place / "errors",
        launcher=training.python,
        fresh=training.fresh,
        finalizes=True,  # the agent must not change that either
    )
