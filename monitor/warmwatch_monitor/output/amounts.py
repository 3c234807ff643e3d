"""Formats rates and other amounts, and PyTorch's texts. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from warmwatch.shared.breaks import plain_break
from warmwatch.shared.phrases import broken_place, duration, one_line, place, took
from warmwatch.shared.reasons import plain
from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.figures.compile import CompileTarget, Located
from warmwatch_monitor.figures.rank import LimitedBy, Slower, SlowerPeriod

if TYPE_CHECKING:
    from warmwatch_monitor.model.journal import Compilation
    from warmwatch_monitor.model.run_summary import Compiled

T = TypeVar("T")

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_LARGE = ((1e9, " GJ"), (1e6, " MJ"), (1e4, " kJ"))


def if_known(words: Callable[[T], str], value: T | None, unknown: str = "") -> str:
    return unknown if value is None else words(value)


def few(parts: Sequence[str], most: int) -> str:
    """The first ``most``, and how many others there are: ``a, b, c and 2 more``."""
    left = len(parts) - most
    shown = ", ".join(parts[:most])
    return f"{shown} and {left} more" if left > 0 else shown


def mostly(phase_seconds: Mapping[str, float]) -> str:
    """``inductor 61 %``: the phase that took most; empty if none is known."""
    whole = sum(phase_seconds.values())
    if not whole:
        return ""
    name = max(phase_seconds, key=lambda phase: phase_seconds[phase])
    return f"{name} {100 * phase_seconds[name] / whole:.0f} %"


def cached(hits: int, misses: int) -> str:
    """``2/3``: compilations that a compile cache had; empty if there was none."""
    return f"{hits}/{hits + misses}" if hits + misses else ""


def moment(epoch: float) -> str:
    """The local time: ``2026-11-21 14:03:20``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch))


def number(value: float) -> str:
    """At least three digits, with thousands separators: ``0.42``, ``17.4``, ``1,016``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(ratio: float) -> str:
    """``87.1 %``; a small ratio is not rounded to 0: ``< 0.1 %``."""
    share = 100 * ratio
    return "< 0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def energy(joules: float) -> str:
    """``842 J``, ``39.2 kJ``."""
    for size, unit in _LARGE:
        if joules >= size:
            return f"{joules / (1e3 if size == 1e4 else size):.3g}{unit}"
    return f"{number(joules)} J"


def size(many: float) -> str:
    """``14.6 GB``, decimal."""
    for value, unit in _UNITS:
        if many >= value:
            return f"{many / value:.3g} {unit}"
    return f"{many:.0f} B"


def rate(value: float) -> str:
    """``943``, ``12.3k``, ``1.02 M``, as tokens a second are."""
    for number, unit in ((1e9, " G"), (1e6, " M"), (1e3, "k")):
        if value >= 0.9995 * number:
            return f"{value / number:.3g}{unit}"
    return f"{value:.3g}"


_SHOWN_SHARE = 0.01  # of the operations


def rates(
    tokens: float | None,
    samples: float | None,
    mfu: float | None,
    *,
    estimated: bool,
    dtypes: Mapping[str, float],
) -> str:
    """Tokens and samples a second, and MFU as a ratio; unknown ones are left out."""
    parts = [
        f"{rate(value)} {noun}/s"
        for value, noun in ((tokens, "tokens"), (samples, "samples"))
        if value is not None
    ]
    if mfu is not None:
        parts.append(f"MFU {'about ' if estimated else ''}{mfu * 100:.2g} %{_of_peaks(dtypes)}")
    return ", ".join(parts)


def _of_peaks(dtypes: Mapping[str, float]) -> str:
    """`` (72 % float8, 28 % bfloat16)``; empty if all is bfloat16, to which an MFU refers."""
    shown = {name: share for name, share in dtypes.items() if share >= _SHOWN_SHARE}
    if not shown or list(shown) == ["bfloat16"]:
        return ""
    if len(shown) == 1:
        return f" ({next(iter(shown))})"
    return f" ({', '.join(f'{share * 100:.0f} % {name}' for name, share in shown.items())})"


def limited(limit: LimitedBy) -> str:
    """``limited by input: 62 % of the time waits for batches``; without evidence the share."""
    if limit.evidence:
        return f"limited by {limit.subject}: {', '.join(limit.evidence)}"
    return limited_shortly(limit)


def limited_shortly(limit: LimitedBy) -> str:
    """``limited by input (62 %)``."""
    share = "" if limit.share is None else f" ({100 * limit.share:.0f} %)"
    return f"limited by {limit.subject}{share}"


_AS_FAST = "as fast"


def faster(speed_up: float) -> str:
    """``7.4 times slower`` for a speed-up of 0.135; ``as fast`` if it rounds to 1."""
    how = "slower" if speed_up < 1 else "faster"
    times = f"{1 / speed_up if speed_up < 1 else speed_up:.3g}"
    return _AS_FAST if times == "1" else f"{times} times {how}"


def gained(speed_up: float, paid_back_at: int | None) -> str:
    """The speed-up of compiled steps over eager ones, and the step of the break-even."""
    if speed_up <= 1:
        how = faster(speed_up)
        how = f"{how} as" if how == _AS_FAST else f"{how} than"
        return f"{how} eager, so compiling never breaks even"
    fast = f"{speed_up:.2g}x as fast as eager"
    return fast if paid_back_at is None else f"{fast}; break-even at step {paid_back_at:,}"


def a_step(rank: Mapping[str, Any]) -> float | None:
    """Step length in seconds: the recent one; of the whole run if it has ended, as in a report."""
    recent: float | None = rank["step_seconds"].get("recent")
    return clean_step(rank) if not recent or rank["state"] in ENDED_STATES else recent


def clean_step(rank: Mapping[str, Any]) -> float | None:
    """Clean step length in seconds over the whole run; ``None`` without a clean step.

    Older histories have only the median, without ``typical``.
    """
    steps = rank["step_seconds"]
    length: float | None = steps.get("typical") or steps["median"]
    return length


_NOT_MEASURED = "cause not measured (no `warmwatch serve` ran before)"


def slower_period(period: SlowerPeriod) -> str:
    """``for 180 s, steps 301 to 700: 400 ms a step (24 ms before, 17x); load 8.9 on 2 CPUs``."""
    why = _NOT_MEASURED if period.causes is None else causes_of(period)
    return f"{_when_slower(period)}: {took(period.seconds)} a step {compared(period)}; {why}"


def compared(slower: Slower | SlowerPeriod) -> str:
    """``(24 ms before, 17x)``."""
    return f"({took(slower.before)} before, {float(f'{slower.ratio:.2g}'):g}x)"


def causes_of(slower: Slower | SlowerPeriod) -> str:
    return ", ".join(slower.causes or ()) or "no known cause"


def _when_slower(period: SlowerPeriod) -> str:
    since, until = period.since_step, period.until_step
    if until is None:
        return "now" if since is None else f"since step {since + 1:,}"
    if since is None or period.began_at is None or period.ended_at is None:
        return f"up to step {until:,} (its begin was not seen)"
    length = duration(period.ended_at - period.began_at)
    return f"for {length}, steps {since + 1:,} to {until:,}"


REASON_LIMIT = 80
WHOLE = 400  # characters: an agent records no longer ones of a graph break or a failure


def own_words(reason: str, longest: int = REASON_LIMIT) -> str:
    """PyTorch's text on one line, shortened to ``longest``."""
    return one_line(reason, longest)


def failure(how: str | None, reason: str | None, longest: int = 60) -> str:
    """``Unsupported: it branches on a tensor's value``; the type alone if no more is known."""
    name = (how or "").rpartition(".")[2]
    return f"{name}: {plain_break(reason) or own_words(reason, longest)}" if reason else name


def failed_at(compilation: Compilation | Compiled) -> str | None:
    """The traced line that failed, without backticks; ``None`` if it is unknown."""
    at = compilation.failed_at
    return broken_place(*at.function, at.caller).replace("`", "") if at else None


def failure_of(compilation: Compilation | Compiled, longest: int = 60) -> str:
    """``Unsupported: it branches on a tensor's value, at loss (train.py:5)``."""
    text = failure(compilation.failure, compilation.failure_reason, longest)
    at = failed_at(compilation)
    return f"{text}, at {at}" if at else text


_LEFT = {"all": "all of {} runs eagerly", "rest": "the rest of {} runs eagerly"}


def broken_at(places: Iterable[tuple[str | None, str | None]]) -> str:
    """Where graphs broke, and what PyTorch leaves to Python there; empty if not known.

    ``places``: of each what is called, and how much of it runs eagerly.
    """
    texts = (_LEFT.get(eager or "", "at {}").format(called) for called, eager in places if called)
    return "; ".join(texts)


def plain_reason(target: CompileTarget) -> str | None:
    """Why it is recompiled, in plain words; ``None`` if there are none."""
    of = target.of_class, target.parameter, target.actual
    return plain(target.reason, target.category, *of)


def reason(target: CompileTarget, longest: int = REASON_LIMIT) -> str:
    """The same, else PyTorch's own words; empty if neither is known."""
    return plain_reason(target) or own_words(target.reason or "", longest)


def label(target: Located) -> str | None:
    """The function's name and place without backticks; ``None`` if it is unknown."""
    return place(*target.function).replace("`", "") or None


def consecutive(numbers: Iterable[int]) -> list[range]:
    """``numbers`` as ranges, in order."""
    ranges: list[range] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return ranges


def spans(ranges: Iterable[range], separator: str = ",") -> str:
    """``0-3,6``."""
    return separator.join(
        str(item.start) if len(item) == 1 else f"{item.start}-{item.stop - 1}" for item in ranges
    )
