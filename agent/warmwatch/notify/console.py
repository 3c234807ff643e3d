"""Console messages: one line for each event of a run, if the user enabled them.

Lines go to the terminal, or to the logger ``warmwatch`` if it has a level.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from warmwatch._guard import pass_on, report
from warmwatch.shared.advice import advice
from warmwatch.shared.fallbacks import reason_of, words
from warmwatch.shared.loaded import loaded
from warmwatch.shared.phrases import called_from, counted, duration, place, took
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import PHASES, SETTLED_BY, Slot
from warmwatch.shared.verdict import repeats

if TYPE_CHECKING:
    from warmwatch.process.ending import End


_logger = logging.getLogger("warmwatch")


def is_logged() -> bool:
    """Whether the user enabled our logger by name, with a level that lets us in."""
    return _logger.level != logging.NOTSET and _logger.isEnabledFor(logging.INFO)


def put(line: str, *, shown: bool) -> None:
    """Log ``line`` if the logger is enabled, and show it if ``shown``.

    Raises:
        Exception: whatever the user's stream, log handler or progress bar raises, unless the stream
            is closed or full.
    """
    try:
        if shown and sys.stderr is not None:
            _show(line)
    finally:  # log it even if the stream raises
        if is_logged():
            _logger.info(line)


def _show(line: str) -> None:
    text = f"warmwatch: {line}"
    bars = _bars()
    try:
        if bars is not None:
            bars.write(text, file=sys.stderr)
        else:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
    except _LOST as error:
        pass_on(error)


_LOST = (OSError, ValueError)  # the program's stream is full or closed: no error of the agent


def _is_terminal(stream: Any) -> bool:
    """Whether a person sees it. A stream that the program put in place may have no such method."""
    try:
        return bool(getattr(stream, "isatty", bool)())
    except _LOST as error:
        pass_on(error)
        return False


def _bars() -> Any:
    """tqdm's class, if one of its bars is on the screen."""
    bars = getattr(loaded("tqdm.std"), "tqdm", None)
    return bars if getattr(bars, "_instances", None) else None


LONG_SECONDS = 10.0
_MOST_RECOMPILES = 20  # printed one by one


class Announcer:
    """Prints the events that it receives.

    Args:
        shown: also print to the terminal; the logger gets them if the user enabled it.
        slot: reads the present record. rank: this process's; ``None`` if it is not a rank.
    """

    def __init__(
        self, *, shown: bool, slot: Callable[[], Slot], rank: Callable[[], int | None]
    ) -> None:
        self.shown = shown
        self._slot, self._rank = slot, rank
        self._recompiles = 0
        self._over = False

    def attached(self) -> None:
        """Name the run of rank 0, if a person at a terminal sees it."""
        try:
            if self._rank() == 0 and _is_terminal(sys.stdout) and _is_terminal(sys.stderr):
                run = self._slot().identity.run
                _show(f"run {run}; in another terminal: warmwatch status {shlex.quote(run)}")
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("say", error)

    def long(self, since: int, first: bool) -> None:  # noqa: ARG002 - an Alarm's call
        """A compilation takes long."""
        self._print(_long)

    def warm(self) -> None:
        """The warm-up has ended."""
        self._print(_warm)

    def compiled(self, values: Mapping[str, Any]) -> None:
        """A compilation ended: report it if it is a recompile, and not one at the limit."""
        if "category" not in values or "at_limit" in values:
            return
        self._recompiles += 1
        if self._recompiles < _MOST_RECOMPILES:
            self._print(lambda slot: _recompiled(slot, values))
        elif self._recompiles == _MOST_RECOMPILES:
            self._print(
                lambda _slot: f"{_MOST_RECOMPILES} recompiles; further ones are not reported"
            )

    def fallback(self, values: Mapping[str, Any]) -> None:
        """Some calls of a function run eagerly."""
        self._print(lambda _slot: _fallback(values), wrong=True)

    def ended(self, end: End) -> None:
        """The process ends. A spawned child reports that twice, and the first end counts."""
        if self._over:
            return
        self._over = True
        self._print(lambda slot: _summary(slot, end), wrong=end.how == "failed")

    def _print(self, message: Callable[[Slot], str], *, wrong: bool = False) -> None:
        try:
            if not (self.shown or is_logged()):
                return
            rank = self._rank()
            if rank is None or (rank and not wrong):
                return
            line = message(self._slot())
            put(f"rank {rank}: {line}" if rank else line, shown=self.shown)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("say", error)


def _long(slot: Slot) -> str:
    phase = slot.compile.active_phase
    return f"compiling for {duration(LONG_SECONDS)}" + (f" ({PHASES[phase - 1]})" if phase else "")


def _warm(slot: Slot) -> str:
    counts = slot.compile
    if not counts.begun and counts.precompiled:
        return "warm: runs code that was compiled ahead of time"
    if not counts.begun and not counts.graphs_before:
        return "runs eagerly: no compile activity so far"
    length = slot.recent_step_ns or slot.typical_step_ns
    speed = f"; {took(length / 1e9)} a step" if length else ""
    if counts.settled == counts.begun + 1:
        return f"warm: {why_settled(slot)}{speed}"
    if not counts.begun:
        step = slot.header.warm_steps
        return f"warm since step {step}: no compile event since the agent was attached{speed}"
    span = counts.last_warmup
    seconds = (span.ended_ns - span.began_ns) / 1e9
    again = "again " if counts.warmups > 1 else ""
    step = counts.clean_after + slot.header.warm_steps
    return f"warm {again}since step {step}, after {duration(max(seconds, 0.0))}{speed}"


def why_settled(slot: Slot) -> str:
    """What made a process without steps warm."""
    counts = slot.compile
    if SETTLED_BY[counts.settled_by] != "quiet":
        return "ready() was called"
    since = max(counts.last_end_ns, slot.header.attached_ns)
    return f"no compile event for {duration((counts.settled_ns - since) / 1e9)}"


def _recompiled(slot: Slot, values: Mapping[str, Any]) -> str:
    category, reason = values["category"], values.get("reason")
    what = place(values.get("name"), values.get("file"), values.get("line"))
    length = f" in {duration(values['seconds'])}" if values.get("seconds") else ""
    of = (values.get(name) for name in ("class", "parameter", "actual"))
    why = plain(reason, category, *of) or category
    after_warm = slot.compile.warmups > 0 or repeats(
        slot.steps, slot.compile, slot.header.warm_steps
    )
    remedy = advice(
        *(category, values["kind"], reason),
        dynamic=values.get("dynamic"),
        after_warm=after_warm,
        last_batch=values.get("last_batch"),
        parameter=values.get("parameter"),
        anew="anew" in values,
    )
    what = f"{what}{called_from(values.get('caller'))}," if "caller" in values else what
    head = f"recompiled {what or 'a graph'} {_when(slot.steps.steps, values)}{length}: {why}"
    return f"{head}. {remedy}" if remedy else head


def _when(steps: int, values: Mapping[str, Any]) -> str:
    if not values.get("evaluating"):
        return f"in step {steps + 1}"
    return f"between steps {steps} and {steps + 1}" if steps else "before step 1"


def _fallback(values: Mapping[str, Any]) -> str:
    where = place(values.get("name"), values.get("file"), values.get("line"))
    fullgraph = values.get("fullgraph") is True
    return words(reason_of(values.get("setting")), where, fullgraph=fullgraph)


def _summary(slot: Slot, end: End) -> str:
    counts, steps = slot.compile, slot.steps.steps
    spent = sum(counts.phase_ns) / 1e9
    nothing = "no compile event" + " since the agent was attached" * (counts.graphs_before > 0)
    parts = [f"{duration(spent)} of compiling" if counts.begun else nothing]
    if recompiles := sum(counts.recompiles_by_category):
        parts.append(counted(recompiles, "recompile"))
    if length := slot.typical_step_ns:
        parts.append(f"{took(length / 1e9)} a clean step (whole run)")
    return f"{_how(end)} after {counted(steps, 'step')}: {', '.join(parts)}"


def _how(end: End) -> str:
    if end.how == "failed":
        return f"failed ({end.exception or f'exit code {end.code}'})"
    # the exit code is unknown here: `sys.exit(3)` ends like the last line does
    return "interrupted" if end.how == "interrupted" else "ended"
