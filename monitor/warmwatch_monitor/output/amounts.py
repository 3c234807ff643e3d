"""Formats step lengths, rates and other amounts, and PyTorch's texts. Pure.

A sentence has "12 min" for progress; a report has "12 min 5 s" (:func:`took`) for a cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from warmwatch.shared.phrases import duration, one_line, step_length
from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.published import LimitedBy

T = TypeVar("T")

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_LARGE = ((1e9, " GJ"), (1e6, " MJ"), (1e4, " kJ"))


def if_known(words: Callable[[T], str], value: T | None, unknown: str = "") -> str:
    return unknown if value is None else words(value)


def took(seconds: float) -> str:
    """``116 ms``, ``2.14 s``, ``43.2 s``, ``118 s``, ``12 min 5 s``, ``3 h 5 min``, ``2 d 4 h``.

    A negative one has a minus, unless it is rounded to zero.
    """
    if seconds <= 0:
        return f"-{took(-seconds)}" if seconds else "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return _two(whole, 60, "min", 1, "s")
    if whole < 48 * 3600:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86400, "d", 3600, "h")


def _two(whole: int, large: int, of_large: str, small: int, of_small: str) -> str:
    many, rest = divmod(whole, large)
    few = rest // small
    return f"{many} {of_large} {few} {of_small}" if few else f"{many} {of_large}"


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
    """``2/3``: lookups in compile caches that hit; empty if there was none."""
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
    for one, unit in _UNITS:
        if many >= one:
            return f"{many / one:.3g} {unit}"
    return f"{many:.0f} B"


def money(amount: float) -> str:
    """A price has no currency here: ``0.42``, ``1,016.50``."""
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


def rate(value: float) -> str:
    """``943``, ``12.3k``, ``1.02 M``, as tokens a second are."""
    for one, unit in ((1e9, " G"), (1e6, " M"), (1e3, "k")):
        if value >= 0.9995 * one:
            return f"{value / one:.3g}{unit}"
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


LIMITED = "limited by "  # ``top`` finds these facts by their beginnings
IN_PROGRESS = "compile activity in progress for "


def limited(known: LimitedBy) -> str:
    """``limited by input: 62 % of the time waits for batches``; without evidence the share."""
    if known.evidence:
        return f"{LIMITED}{known.subject}: {', '.join(known.evidence)}"
    return limited_shortly(known)


def limited_shortly(known: LimitedBy) -> str:
    """``limited by input (62 %)``."""
    share = "" if known.share is None else f" ({100 * known.share:.0f} %)"
    return f"{LIMITED}{known.subject}{share}"


def faster(speed_up: float) -> str:
    """``7.4 times slower`` for a speed-up of 0.135; ``as fast`` if it rounds to 1."""
    how = "slower" if speed_up < 1 else "faster"
    times = f"{1 / speed_up if speed_up < 1 else speed_up:.3g}"
    return "as fast" if times == "1" else f"{times} times {how}"


def gained(speed_up: float, paid_back_at: int | None) -> str:
    """The speed-up of compiled steps over eager ones, and the step of the break-even."""
    if speed_up <= 1:
        words = faster(speed_up)
        than = "as" if words.endswith("as fast") else "than"
        return f"{words} {than} eager, so compiling never breaks even"
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


def slower_period(one: Mapping[str, Any]) -> str:
    """``for 3 min, steps 301 to 700: 400 ms a step (24 ms before, 17x); load 8.9 on 2 CPUs``."""
    ratio = float(f"{one['ratio']:.2g}")
    before = f"({step_length(one['before'])} before, {ratio:g}x)"
    causes = one["causes"]
    why = _NOT_MEASURED if causes is None else ", ".join(causes) or "no known cause"
    return f"{_when_slower(one)}: {step_length(one['seconds'])} a step {before}; {why}"


def _when_slower(one: Mapping[str, Any]) -> str:
    since, until = one["since_step"], one["until_step"]
    if until is None:
        return "now" if since is None else f"since step {since + 1:,}"
    if since is None:
        return f"up to step {until:,} (its begin was not seen)"
    length = duration(one["ended_at"] - one["began_at"])
    return f"for {length}, steps {since + 1:,} to {until:,}"


_REASON_LIMIT = 80


def own_words(reason: str, longest: int = _REASON_LIMIT) -> str:
    """PyTorch's text on one line, shortened to ``longest``."""
    return one_line(reason, longest)


def of_break(reason: str, whole: str | None, longest: int = _REASON_LIMIT) -> str:
    """Why a graph broke; ``whole``: the function that PyTorch left to Python because of it."""
    left = f"; all of {whole} runs eagerly" if whole else ""
    return f"{own_words(reason, longest)}{left}"


def consecutive(numbers: Iterable[int]) -> list[range]:
    """``numbers`` as ranges, in order."""
    found: list[range] = []
    for number in sorted(numbers):
        if found and number == found[-1].stop:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def spans(ranges: Iterable[range], separator: str = ",") -> str:
    """``0-3,6``."""
    return separator.join(
        str(one.start) if len(one) == 1 else f"{one.start}-{one.stop - 1}" for one in ranges
    )
