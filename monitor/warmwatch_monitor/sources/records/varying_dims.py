"""Dimensions and numbers that changed repeatedly, collected from a journal's lines.

For each recompile Dynamo reports which guard of which compiled entry did not fit. The entry
compiled last comes first, and its guard is the cause; the lines of the others only add further
values. A guard on a symbol (``2 <= x.size()[1]``) contains no value; then another line may. A guard
on a number (``self.step == 3``) contains the compiled values, never the new one, also at the limit,
where nothing is compiled. Everything is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.advice import of_varying
from warmwatch.shared.guard_text import ENTRY, LOCAL
from warmwatch_monitor.model import FEWEST_STEPS, Compilation, VaryingDim

MOST_DIMS = 50
MOST_VALUES = 100
_MOST_IDS = 20  # recompiles whose backward may still come
_LINES_READ = 100  # of a reason: one for each compiled entry

_SIZE = (
    r"tensor '(?P<tensor>.{1,200})' size mismatch at index (?P<dim>\d{1,3})\. "
    r"expected (?P<old>\d{1,15}), actual (?P<new>\d{1,15})\s*$"
)
_NUMBER = r"(?P<name>[\w.\[\]'\"]{1,200}) == (?P<old>-?\d{1,15})$"
# Search for the fixed part, then backwards: forwards, each character could begin a name.
_SYMBOL = r"\.size\(\)\[(?P<dim>\d{1,3})\]"
_NAME_BEFORE = r"[\w.\[\]'\"]{1,200}"

_OF_NUMBERS = "python_value"
_Key = tuple[str | None, str | None, int | None, str, int | None, bool]


class _Size(Struct, frozen=True, kw_only=True):
    """One line's size of one dimension; no values if it compares a symbol.

    A number has no ``dim``.
    """

    tensor: str
    dim: int | None = None
    values: tuple[int, ...] = ()


class Varying:
    """Collects them. ``dims`` is the same object until something is added to it."""

    def __init__(self) -> None:
        self.dims: tuple[VaryingDim, ...] = ()
        self._known: dict[_Key, VaryingDim] = {}
        self._by_id: dict[str, _Key] = {}
        self._warm: tuple[int, int] | None = None  # when it became warm, and the step count then
        self._before: float | None = None  # mean step of the last span of clean steps
        self._steps = 0  # the step count when compile activity began last
        self._first: dict[_Key, int] = {}  # the same at the recompiles of each

    @property
    def warm_since(self) -> tuple[int, int] | None:
        """The begin of the present span of clean steps, and the step count then."""
        return self._warm

    def warm(self, at_ns: int, steps: int) -> None:
        self._warm = at_ns, steps
        for key, dim in self._known.items():  # without steps nothing is within one
            self._known[key] = replace(dim, within_step=0 <= self._first[key] < steps)
        self._publish()

    def begin(self, at_ns: int, steps: int) -> None:
        """Compile activity began: the clean steps so far are one span."""
        self._steps = steps
        span, self._warm = self._warm, None
        if span is None or steps - span[1] < FEWEST_STEPS or at_ns <= span[0]:
            return
        took_ns, count = at_ns - span[0], steps - span[1]
        self._before = took_ns / count / 1e9
        for key, dim in self._known.items():
            spent = dim.since_ns + took_ns
            self._known[key] = replace(dim, since_ns=spent, since_steps=dim.since_steps + count)
        self._publish()

    def compilation(self, made: Compilation) -> None:
        """Add a compilation: a recompile for a size or a number, or its backward."""
        if made.at_limit and made.category != _OF_NUMBERS:
            return  # nothing was compiled for that size
        if made.parameter:
            return  # padding a parameter helps nobody
        key = self._by_id.get(made.id) if made.id else None
        if made.kind == "backward":
            if key is not None and made.seconds:
                dim = self._known[key]
                self._known[key] = replace(dim, seconds=(dim.seconds or 0.0) + made.seconds)
                self._publish()
        elif made.kind == "forward" and made.category in ("shape", _OF_NUMBERS) and made.reason:
            self._recompile(made, made.reason)

    def _recompile(self, made: Compilation, reason: str) -> None:
        sizes = list(sizes_in(reason))
        if not sizes or sizes[0] is None:
            return
        cause = sizes[0]
        if (cause.dim is None) != (made.category == _OF_NUMBERS):
            return  # something else than the first guard changed
        # an evaluation has graphs of its own: its sizes are none of a step
        key = made.name, made.file, made.line, cause.tensor, cause.dim, made.evaluating
        if key not in self._known and len(self._known) >= MOST_DIMS:
            return
        of_it = [s for s in sizes if s and (s.tensor, s.dim) == (cause.tensor, cause.dim)]
        numbers = {value for size in of_it for value in size.values}
        dim = self._more(self._known.get(key), made, cause, numbers)
        dim = replace(dim, helps=of_varying(made.category, reason, made.dynamic) or dim.helps)
        if cause.dim is None:
            # PyTorch compares with each value that was compiled, and does not report the new one
            entries = sum(bool(re.match(ENTRY, line)) for line in reason.split("\n"))
            one_more = not made.at_limit and len(of_it) == entries
            dim = replace(dim, one_more=one_more)
        self._known[key] = replace(dim, within_step=False)
        if self._first.setdefault(key, self._steps) != self._steps or made.evaluating:
            self._first[key] = -1  # it changes from step to step, or from batch to batch
        if made.id:
            self._by_id[made.id] = key
            while len(self._by_id) > _MOST_IDS:
                del self._by_id[next(iter(self._by_id))]
        self._publish()

    def _more(
        self, item: VaryingDim | None, made: Compilation, cause: _Size, numbers: set[int]
    ) -> VaryingDim:
        if item is None:
            where = {"name": made.name, "file": made.file, "line": made.line}
            dim = VaryingDim(tensor=cause.tensor, dim=cause.dim, **where)  # type: ignore[arg-type]
            item = replace(dim, before_seconds=self._before)
        values = tuple(sorted({*item.values, *numbers}))
        ends = [*values, *(end for end in (item.lowest, item.highest) if end is not None)]
        seconds = item.seconds
        took = None if made.at_limit else made.seconds  # refused: nothing was compiled
        return replace(
            item,
            values=values if len(values) <= MOST_VALUES else item.values,
            complete=item.complete and len(values) <= MOST_VALUES,
            lowest=min(ends, default=None),
            highest=max(ends, default=None),
            count=item.count + (not made.at_limit),
            timed=item.timed + (took is not None),
            seconds=seconds if took is None else (seconds or 0.0) + took,
            last_id=made.id,
            dynamic=made.dynamic,
        )

    def _publish(self) -> None:
        self.dims = tuple(self._known.values())


def sizes_in(reason: str) -> Iterator[_Size | None]:
    """The size in each line of a reason; ``None`` for a line about something else."""
    for line in reason.strip().split("\n", _LINES_READ)[:_LINES_READ]:
        guard = re.sub(LOCAL, r"\1", re.sub(ENTRY, "", line).partition("  # ")[0].strip())
        if match := re.match(_SIZE, guard):
            values = int(match["old"]), int(match["new"])
            yield _Size(tensor=match["tensor"], dim=int(match["dim"]), values=values)
        elif (at := re.search(_SYMBOL, guard)) and (name := _name_before(guard, at.start())):
            yield _Size(tensor=name, dim=int(at["dim"]))
        elif match := re.fullmatch(_NUMBER, guard):
            yield _Size(tensor=match["name"], values=(int(match["old"]),))
        else:
            yield None


def _name_before(guard: str, end: int) -> str | None:
    """The tensor's name before ``end``."""
    match = re.match(_NAME_BEFORE, guard[max(0, end - 200) : end][::-1])
    return match[0][::-1] if match else None
