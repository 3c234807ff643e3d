"""One run of ``warmwatch modes``: start the script, follow it, and end it once measured."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import note, plain, rewrite
from warmwatch_monitor.run.launched import Launched, boot

if TYPE_CHECKING:
    from warmwatch_monitor.model import RunView, Snapshot
    from warmwatch_monitor.model.run_summary import RunSummary
    from warmwatch_monitor.modes.bounded import Stops
    from warmwatch_monitor.modes.table import Tried

_PAUSE_SECONDS = 0.5
MODE = "WARMWATCH_MODE"
_OFF = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")  # PyTorch's own ways to compile nothing


class Progress:
    """Progress: one line that is updated on a terminal; elsewhere one line at the begin."""

    def __init__(self, which: str, stream: TextIO | None) -> None:
        self._which, self._redrawn = which, stream is not None and stream.isatty()
        if not self._redrawn:
            note(f"warmwatch: {which}")

    def show(self, words: str) -> None:
        if self._redrawn:
            rewrite(f"warmwatch: {self._which}: {words}")

    def clear(self) -> None:
        if self._redrawn:
            rewrite("")


def attempt(
    command: tuple[str, ...],
    mode: str,
    caches: Mapping[str, str],
    *,
    name: str,
    steps: int | None,
    timeout: float,
    place: Path | None,
    stops: Stops,
    progress: Progress,
) -> Tried:
    """Run ``command`` in ``mode``. ``place``: path of the file for its output.

    Raises OSError where it cannot be started.
    """
    from warmwatch_monitor.modes.bounded import bounded
    from warmwatch_monitor.modes.table import Tried
    from warmwatch_monitor.output.wording import duration
    from warmwatch_monitor.run.environment import environment

    launch = uuid.uuid4().hex
    run = _Followed(Launched(launch), steps, timeout, stops, progress)
    base = environment_of(mode, {**os.environ, **caches})
    with _output(place) as output:
        code, why = bounded(
            command,
            environment(base, boot(), run=name, started_by=launch),
            output=output,
            look=run.look,
            seconds=_PAUSE_SECONDS,
            hurry=lambda: stops.count > 1,
        )
    seconds = time.monotonic() - run.began
    progress.clear()
    note(f"warmwatch: {mode}: {run.words()} ({duration(seconds)} in all)")
    account, others = run.ended(by_us=why is not None)
    return Tried(
        mode=mode,
        account=account,
        others=others,
        ended_by=why or "itself",
        code=code if why is None else None,
        seconds=seconds,
        output=None if place is None else str(place),
    )


def environment_of(mode: str, environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` for a script that runs in ``mode``."""
    from warmwatch_monitor.compare.parts import EAGER

    kept = {name: value for name, value in environ.items() if name not in (*_OFF, MODE)}
    return {**kept, **({_OFF[0]: "1"} if mode == EAGER else {MODE: mode})}


@contextlib.contextmanager
def _output(place: Path | None) -> Iterator[IO[bytes] | int]:
    """The script's output: a file, or stderr."""
    if place is None:
        yield 2
        return
    try:
        file = place.open("wb")
    except OSError as error:
        raise UsageError(f"--output: {place} cannot be written: {error.strerror}") from None
    with file:
        yield file


class _Followed:
    """The run of one mode in progress."""

    def __init__(
        self,
        launched: Launched,
        steps: int | None,
        timeout: float,
        stops: Stops,
        progress: Progress,
    ) -> None:
        self._launched, self._stops, self._progress = launched, stops, progress
        self._steps, self._timeout = steps, timeout
        self._last: Snapshot | None = None
        self.began = time.monotonic()

    def look(self) -> str | None:
        """Why to end it now; ``None``: continue."""
        from warmwatch_monitor.modes.table import enough

        self._last = self._launched.snapshot()
        run = _main(self._last)
        self._progress.show(self._words(run))
        if self._stops.count:
            return "interrupted"
        if run is not None and enough(run, self._steps):
            return "steady" if self._steps is None else "steps"
        return "timeout" if time.monotonic() - self.began > self._timeout else None

    def words(self) -> str:
        """Its state at the last poll, in words."""
        return self._words(None if self._last is None else _main(self._last))

    def _words(self, run: RunView | None) -> str:
        from warmwatch_monitor.output.summary import shortened
        from warmwatch_monitor.output.wording import duration
        from warmwatch_monitor.status.words.sentence import run_sentence

        if run is None:
            return f"no step and no compilation for {duration(time.monotonic() - self.began)}"
        return str(plain(run_sentence(run).removeprefix(f"{shortened(run.run)}: ")))

    def ended(self, *, by_us: bool) -> tuple[RunSummary | None, tuple[str, ...]]:
        """Its summary from before it was ended, and the names of other runs."""
        from warmwatch_monitor.history.summaries import summarize_run

        after = self._launched.ended()
        self._launched.remember()
        snapshot = self._last if by_us and self._last is not None else after
        run = _main(snapshot)
        if run is None:
            return None, ()
        others = tuple(one.run for one in snapshot.runs if one is not run)
        return summarize_run(run, snapshot), others


def _main(snapshot: Snapshot) -> RunView | None:
    """The run with the most steps; a script may make several."""
    return max(
        snapshot.runs,
        key=lambda run: max(view.figures.steps.count for view in run.ranks),
        default=None,
    )
