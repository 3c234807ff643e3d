"""``python -m support.estimates`` (in ``tests/``): accuracy of the estimated time left.

Each scenario is trained twice with real Inductor and cold caches. The history records the first
run. During the second, a monitor like that of ``warmwatch status`` estimates several times a
second. ``support.accuracy`` writes the table into docs/explanation/accuracy.md. It shows the error
when 25, 50 and 75 % of the warm-up were over, and the error of a simple guess: that the warm-up
takes twice as long as it has so far.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from support import scenarios
from support.accuracy import DOCUMENT, ESTIMATES
from support.scenarios import Scenario
from support.sources import settings
from support.stored_runs import history_settings, store
from warmwatch_monitor.history.earlier_runs_source import earlier_runs_source
from warmwatch_monitor.history.summaries import summarize_run
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.listed import HOST, RECORDS

COMMAND = "cd tests && PYTHONPATH=. python -m support.estimates"
CHOSEN = ("static", "graph_breaks", "compiled_train_step", "regional")
SHARES = (0.25, 0.5, 0.75)
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """The estimate ``so_far`` seconds into a warm-up."""

    so_far: float
    left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One scenario: how long its two warm-ups were, and the estimates during the second."""

    name: str
    first: float
    second: float
    guesses: tuple[Guess, ...]

    def at(self, share: float) -> Guess | None:
        """The estimate nearest to that share of the second warm-up."""
        wanted = share * self.second
        return min(self.guesses, key=lambda one: abs(one.so_far - wanted), default=None)


def measure(scenario: Scenario, folder: Path) -> Measured:
    """Train it twice."""
    history = history_settings(folder / "state")
    first = _watched(scenario, folder / "first", folder / "state")[-1]
    (run,) = first.runs
    store(folder / "state").save([summarize_run(run, first)])
    seen = _watched(scenario, folder / "second", folder / "state")
    assert history.directory is not None
    return Measured(
        name=scenario.name,
        first=_took(first),
        second=_took(seen[-1]),
        guesses=tuple(_guesses(seen)),
    )


def _watched(scenario: Scenario, folder: Path, state: Path) -> list[Snapshot]:
    """What a monitor saw while it trained, the last when it had ended."""
    (folder / "records").mkdir(parents=True)
    cold = replace(scenario, cold=True)
    training = threading.Thread(
        target=scenarios.trained, args=(cold, folder, "with"), kwargs={"SCENARIO_AGENT": "1"}
    )
    poller = Poller(
        settings(str(folder / "records"), retention=3600.0),
        sources=(RECORDS, HOST, *earlier_runs_source(history_settings(state))),
    )
    training.start()
    seen = []
    while training.is_alive():
        training.join(LOOK_SECONDS)
        seen.append(poller.poll_once())
    return [*seen, poller.poll_once()]


def _took(seen: Snapshot) -> float:
    (run,) = seen.runs
    first = run.ranks[0].figures.warmups.first
    assert first is not None, "it never became warm"
    return first.seconds


def _guesses(seen: list[Snapshot]) -> list[Guess]:
    """The estimates of the first warm-up, at each poll during its compilation."""
    found = []
    for one in seen:
        for run in one.runs:
            known = run.ranks[0].estimate
            if known is not None and known.of == "warmup":
                found.append(Guess(so_far=known.so_far_seconds, left=known.left_seconds))
    return found


def rows(measured: list[Measured]) -> list[str]:
    """The lines of the table."""
    return [
        f"| `{one.name}` | {one.first:.1f} s | {one.second:.1f} s | "
        + " | ".join(_cell(one, share) for share in SHARES)
        + " |"
        for one in measured
    ]


def _cell(one: Measured, share: float) -> str:
    guess = one.at(share)
    if guess is None:
        return "no estimate"
    left = one.second - guess.so_far
    naive = f"{100 * abs(guess.so_far - left) / one.second:.0f} %"
    if guess.left is None:
        return f"no estimate / {naive}"
    return f"{100 * abs(guess.left - left) / one.second:.0f} % / {naive}"


def section(measured: list[Measured], torch: str) -> str:
    """The part of the document."""
    return f"""{ESTIMATES}

## How right the estimate of the time left is

Written by `{COMMAND}`. Each scenario was trained
twice with all caches cold, and the first training is the earlier run of the estimate. Cells: the
error of the estimated time left, as a share of the whole warm-up, when 25, 50 and 75 % of the
warm-up were over / the same for the guess "as long again as so far", which can be right at 50 %
only. *No estimate*: it had already taken longer than the earlier run.

PyTorch {torch}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores.
Other programs used them too, so a second warm-up could be longer. Three real trainings on a GPU
are in [estimates](../reference/estimates.md#time-left).

| scenario | first warm-up | second | at 25 % | at 50 % | at 75 % |
|---|---|---|---|---|---|
{chr(10).join(rows(measured))}
"""


def main(names: tuple[str, ...]) -> int:
    chosen = [one for one in scenarios.every() if one.name in names]
    measured = []
    for scenario in chosen:
        with tempfile.TemporaryDirectory() as folder:
            measured.append(measure(scenario, Path(folder)))
        print(rows(measured[-1:])[0], flush=True)
    import torch

    before = DOCUMENT.read_text().partition(ESTIMATES)[0].rstrip("\n")
    DOCUMENT.write_text(f"{before}\n\n{section(measured, torch.__version__)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or CHOSEN))
