"""One run of ``warmwatch modes``: start the script, follow it, and end it once measured.

It may stop when it has shown enough.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TextIO

from warmwatch.shared.phrases import duration
from warmwatch.shared.record.loss_file import GUARDS, REQUEST, SUFFIX
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.commands.compare.comparison import EAGER, runs_of
from warmwatch_monitor.commands.launch import environment
from warmwatch_monitor.commands.launched import Launched
from warmwatch_monitor.commands.modes.child_process import Stops, run_until
from warmwatch_monitor.commands.modes.drift import read_guards, read_losses
from warmwatch_monitor.commands.modes.table import Tried
from warmwatch_monitor.history.summaries import summarize_run
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot
from warmwatch_monitor.output import safe_writing
from warmwatch_monitor.output.console import note, plain, rewrite
from warmwatch_monitor.sources import proc
from warmwatch_monitor.status.words.run import run_answer

if TYPE_CHECKING:
    from warmwatch_monitor.model.run_summary import RunSummary


FEWEST = 10  # clean steps
LEAST_SECONDS = 3.0  # of them together
MOST_SECONDS = 30.0  # of clean steps, even if their median is still uncertain
CERTAIN = 0.01  # relative half-width of the median's 95 % confidence interval
NEAR = 0.02  # relative difference of two runs of one program


def enough(run: RunView, steps: int | None = None, least: int = 0) -> bool:
    """Whether every rank has made ``steps``, or without that number is warm and steady.

    ``least``: and has made so many steps.
    """
    living = run.living
    if not living or run.missing_ranges:
        return False
    if any(view.figures.steps.count < least for view in living):
        return False
    if steps is not None:
        return all(view.figures.steps.count >= steps for view in living)
    return all(map(_steady, living))


def _steady(view: RankView) -> bool:
    """Whether the rank is warm, and the length of a clean step is known well enough."""
    clean = view.figures.steps.clean
    if not view.judgement.warm or view.judgement.compiling:
        return False
    if (clean.count or 0) < FEWEST or (clean.sum_seconds or 0.0) < LEAST_SECONDS:
        return False
    if (clean.sum_seconds or 0.0) >= MOST_SECONDS:
        return True
    if not clean.median or clean.median_low is None or clean.median_high is None:
        return False
    return (clean.median_high - clean.median_low) / 2 <= CERTAIN * clean.median


def left(run: RunView, steps: int | None = None, least: int = 0) -> float | None:
    """Seconds until the run has made ``steps``; ``None`` while that is unknown.

    Without ``steps`` it is: how soon the length of a step is certain depends on the next steps.
    """
    each = [_left(view, max(steps, least)) for view in run.living] if steps is not None else []
    values = [value for value in each if value is not None]
    return max(values) if values and len(values) == len(each) else None


def _left(view: RankView, steps: int) -> float | None:
    clean, made = view.figures.steps.clean, view.figures.steps.count
    if view.judgement.compiling or not clean.median:
        return None
    return max(0.0, (steps - made) * clean.median)


def apart(mode: str, tried: Sequence[Tried]) -> bool:
    """Whether the runs of ``mode`` differ so that a third one is worth its time.

    Student's t is 12.7 for two runs of each program and 4.3 for three. Runs that were slowed show
    nothing. If one of two was, a third may make two; if both were, it would be, too.
    """
    runs = runs_of([item.summary for item in tried if item.mode == mode and item.summary])
    values = [log(run.seconds) for run in runs if run.disturbed is None]
    if len(values) == 1:
        return len(runs) > 1
    return len(values) > 1 and max(values) - min(values) > NEAR


class Expected(NamedTuple):
    """How long a mode takes. ``at_least``: it compiles more than any mode so far."""

    seconds: float
    at_least: bool

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'about'} {duration(self.seconds)}"


def expected(mode: str, tried: Sequence[Tried]) -> Expected | None:
    """How long a mode takes, from modes that compile no more; ``None`` for the first."""
    trieds = [item for item in tried if _effort(item.mode) <= _effort(mode)]
    if not trieds:
        return None
    more = all(_effort(item.mode) < _effort(mode) for item in trieds)
    return Expected(max(item.seconds for item in trieds), at_least=more)


def _effort(mode: str) -> int:
    """How much a mode compiles: 0 eager, 2 with kernels chosen by measuring."""
    return 0 if mode == EAGER else 2 if mode.startswith("max-autotune") else 1


_PAUSE_SECONDS = 0.5
_EXIT_SECONDS = 30.0  # how long an exit may take before it is ended as well
_GUARD_SECONDS = 20.0  # how long guard checks may take to be measured
MODE, LOSSES = "WARMWATCH_MODE", "WARMWATCH_LOSSES"
_MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - a private folder is made in it: no disk is waited for
AS_IS = "as it is"  # no mode is imposed
_OFF = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")  # PyTorch's own ways to compile nothing


class Progress:
    """Progress: one line that is updated on a terminal; elsewhere one line at the begin.

    ``takes``: how long it takes, in words, until the time left is known.
    """

    def __init__(self, which: str, stream: TextIO | None, takes: str = "") -> None:
        self._which, self._takes = which, takes
        self._redrawn = stream is not None and stream.isatty()
        if not self._redrawn:
            note(f"warmwatch: {self._title(takes)}")

    def _title(self, takes: str) -> str:
        return f"{self._which} ({takes})" if takes else self._which

    def show(self, words: str, left: str = "") -> None:
        """The time left comes first, because a narrow terminal cuts off the end."""
        if left:
            self._takes = ""
        if self._redrawn:
            rewrite(f"warmwatch: {self._title(left or self._takes)}: {words}")

    def clear(self) -> None:
        if self._redrawn:
            rewrite("")


class Plan(NamedTuple):
    """How the script runs in one mode, and when its run ends.

    Attributes:
        mode: the mode, or ``AS_IS``. name: of the run.
        round: which run of the mode it is.
        steps: after how many it ends; ``None``: when it is warm and steady.
        least: steps that it makes at least.
        timeout: seconds. over: how it ended if it takes longer: ``timeout`` or ``budget``.
        place: path of the file for its output; ``None``: stderr.
        losses: record its losses, and measure its guard checks unless it is eager.
    """

    mode: str
    name: str
    timeout: float
    over: str = "timeout"
    steps: int | None = None
    least: int = 0
    place: Path | None = None
    losses: bool = False
    round: int = 1


def attempt(
    command: tuple[str, ...],
    plan: Plan,
    caches: Mapping[str, str],
    stops: Stops,
    progress: Progress,
) -> Tried:
    """Run ``command`` by the plan. Raises OSError: it cannot be started."""
    launch = uuid.uuid4().hex
    with _output(plan.place) as output, _loss_folder(needed=plan.losses) as folder:
        guards = None if plan.mode == EAGER else folder
        run = _Followed(Launched(launch), plan, stops, progress, guards)
        base = environment_of(plan.mode, {**os.environ, **caches}, folder)
        code, why = run_until(
            command,
            environment(base, run=plan.name, started_by=launch),
            output=output,
            poll=run.poll,
            seconds=_PAUSE_SECONDS,
            hurry=lambda: stops.count > 1,
        )
        recorded = read_losses(folder) if folder else {}
        checks = read_guards(guards) if guards else None
    seconds = time.monotonic() - run.began
    progress.clear()
    summary, others = run.ended(by_us=why is not None)
    title = plan.mode if plan.round == 1 else f"{plan.mode}, round {plan.round}"
    note(f"warmwatch: {title}: {run.words()} ({duration(seconds)} in all)")
    return Tried(
        mode=plan.mode,
        summary=summary,
        others=others,
        ended_by=why or "itself",
        code=code if why is None else None,
        seconds=seconds,
        output=None if plan.place is None else str(plan.place),
        losses=recorded,
        guard_seconds=checks.seconds if checks else None,
        guard_frames=checks.frames if checks else {},
        guard_rank=checks.rank if checks else None,
        resident_bytes=run.resident_bytes,
    )


def environment_of(
    mode: str, environ: Mapping[str, str], losses: Path | None = None
) -> dict[str, str]:
    """``environ`` for a script that runs in ``mode`` and writes its ``losses`` to that folder."""
    imposed = {AS_IS: {}, EAGER: {_OFF[0]: "1"}}.get(mode, {MODE: mode})
    without = (MODE, LOSSES) if mode == AS_IS else (*_OFF, MODE, LOSSES)
    inherited = {name: value for name, value in environ.items() if name not in without}
    recorded = {} if losses is None else {LOSSES: str(losses)}
    return {**inherited, **recorded, **imposed}


@contextlib.contextmanager
def _loss_folder(*, needed: bool) -> Iterator[Path | None]:
    """A private folder for losses, in memory if possible; removed with them."""
    if not needed:
        yield None
        return
    at = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="warmwatch-losses-", dir=at) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _output(place: Path | None) -> Iterator[IO[bytes] | int]:
    """The script's output: a file, or stderr."""
    if place is None:
        yield 2
        return
    try:
        file = open(safe_writing.opened(str(place)), "wb")  # noqa: PTH123, SIM115
    except OSError as error:
        raise UsageError(f"--output: {place} cannot be written: {error.strerror}") from None
    with file:
        yield file


class _Followed:
    """The run of one mode in progress."""

    def __init__(
        self,
        launched: Launched,
        plan: Plan,
        stops: Stops,
        progress: Progress,
        guards: Path | None,
    ) -> None:
        self._launched, self._plan = launched, plan
        self._stops, self._progress = stops, progress
        self._guards, self._measured, self._measured_at = guards, "", 0.0
        self._last: Snapshot | None = None
        self._exits_since: float | None = None
        self.resident_bytes: int | None = None
        self.began = time.monotonic()

    def poll(self) -> str | None:
        """Why to end it now; ``None``: continue. Guard checks are measured after the steps."""
        if self._measured:
            if self._stops.count:
                return "interrupted"
            return self._measured if self._has_guards() else None
        plan = self._plan
        self._last = self._launched.snapshot()
        run = _main(self._last)
        self._note_memory(run)
        self._progress.show(self._words(run), self._left(run))
        if self._stops.count:
            return "interrupted"
        if run is not None and enough(run, plan.steps, plan.least) and not self._exits(run):
            return self._then_guards("steady" if plan.steps is None else "steps")
        return plan.over if time.monotonic() - self.began > plan.timeout else None

    def _then_guards(self, why: str) -> str | None:
        if self._guards is None:
            return why
        self._measured, self._measured_at = why, time.monotonic()
        (self._guards / REQUEST).touch()
        return None

    def _has_guards(self) -> bool:
        """Whether guard checks were measured, or this took too long."""
        assert self._guards is not None
        late = time.monotonic() - self._measured_at > _GUARD_SECONDS
        ranks, number = (len(list(self._guards.glob(f"*{end}"))) for end in (SUFFIX, GUARDS))
        return late or number >= ranks

    def _exits(self, run: RunView) -> bool:
        """Whether it exits by itself: a signal would then kill it before it has a status."""
        if all(view.figures.life.end is None for view in run.living):
            return False
        if self._exits_since is None:
            self._exits_since = time.monotonic()
        return time.monotonic() - self._exits_since < _EXIT_SECONDS

    def _note_memory(self, run: RunView | None) -> None:
        """Update the most resident memory; the kernel remembers it for each process."""
        pids = [view.record.pid for view in run.ranks if view.record.pid] if run else []
        numbers = [peak for pid in pids if (peak := _peak_resident_bytes(pid))]
        self.resident_bytes = max([self.resident_bytes or 0, *numbers]) or None

    def _left(self, run: RunView | None) -> str:
        """How long it still takes, in words; empty while unknown."""
        seconds = None if run is None else left(run, self._plan.steps, self._plan.least)
        return f"about {duration(seconds)} left" if seconds and seconds >= 1 else ""

    def words(self) -> str:
        """Its state at the last poll, or its end if it ended by itself."""
        run = None if self._last is None else _main(self._last)
        return "no step and no compilation was seen" if run is None else self._words(run)

    def _words(self, run: RunView | None) -> str:
        if run is None:
            return f"no step and no compilation for {duration(time.monotonic() - self.began)}"
        return str(plain(run_answer(run).nameless))

    def ended(self, *, by_us: bool) -> tuple[RunSummary | None, tuple[str, ...]]:
        """Its summary from before it was ended, and the names of other runs."""
        after = self._launched.ended()
        self._launched.write_history()
        self._last = snapshot = self._last if by_us and self._last is not None else after
        run = _main(snapshot)
        if run is None:
            return None, ()
        others = tuple(view.run for view in snapshot.runs if view is not run)
        return summarize_run(run, snapshot), others


def _peak_resident_bytes(pid: int) -> int | None:
    """The most memory that a process had resident so far."""
    kib, *_ = *proc.status(pid).get("VmHWM", "").split(), ""
    return 1024 * int(kib) if kib.isdecimal() else None


def _main(snapshot: Snapshot) -> RunView | None:
    """The run with the most steps; a script may make several."""
    return max(
        snapshot.runs,
        key=lambda run: max(view.figures.steps.count for view in run.ranks),
        default=None,
    )
