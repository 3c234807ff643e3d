"""A comparison in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from warmwatch.shared.phrases import counted
from warmwatch_monitor.compare import comparability as rows
from warmwatch_monitor.compare.comparison import BreakEven, Comparison, Side
from warmwatch_monitor.compare.difference import (
    DISTURBED,
    ONCE,
    SAME,
    WITHIN_NOISE,
    Difference,
    Run,
    usable,
)
from warmwatch_monitor.output import amounts
from warmwatch_monitor.output.amounts import energy, if_known, rate, size, slower_period, took
from warmwatch_monitor.output.document import Document, Item, Section, table

_SPEED = "speed"  # the row of the speed-up, which may be a slow-down
_ABREAST = 3  # runs in one table; more runs take several tables
_ROWS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("torch.compile", lambda one: one.mode or ""),
    ("state", lambda one: one.state),
    (rows.FIRST, lambda one: if_known(took, one.first_step_seconds)),
    ("its peak memory", lambda one: if_known(size, one.first_step_memory_bytes)),
    (rows.FIRST_MEMORY, lambda one: if_known(size, one.compiled_memory_bytes)),
    (rows.WARMUP, lambda one: _warmup(one)),
    (rows.COST, lambda one: "none" if one.cost_seconds == 0 else if_known(took, one.cost_seconds)),
    ("its GPU-seconds", lambda one: if_known(amounts.number, one.gpu_seconds)),
    (rows.SPENT, lambda one: if_known(energy, one.joules)),
    ("its money", lambda one: if_known(amounts.money, one.money)),
    (rows.STEADY, lambda one: if_known(took, one.steady_seconds)),
    ("with all between steps", lambda one: if_known(took, one.whole_step_seconds)),
    ("mean of its runs", lambda one: _mean(one)),
    ("99 % within", lambda one: if_known(took, one.steady_p99_seconds)),
    ("clean steps", lambda one: if_known(amounts.number, one.clean_steps)),
    (_SPEED, lambda one: if_known(speed, one.speed_up)),
    ("tokens/s", lambda one: if_known(rate, one.tokens_per_second or None)),
    (rows.PEAK, lambda one: if_known(size, one.peak_memory_bytes)),
    (rows.ENERGY, lambda one: if_known(energy, one.joules_per_step or None)),
    ("graphs", lambda one: if_known(amounts.number, one.graphs)),
    ("recompiles", lambda one: if_known(amounts.number, one.recompiles)),
    ("graph breaks", lambda one: if_known(amounts.number, one.graph_breaks)),
)


def page(of: Comparison) -> Document:
    """The whole comparison. Differences come first, because they qualify the costs."""
    affected = dict.fromkeys(one.rows for one in of.incomparable)
    differs = [_differs(of, rows) for rows in affected]
    first, *others = [*differs, *map(sentence, of.break_even)]
    return Document(
        title="Warmwatch comparison: " + ", ".join(one.label for one in of.sides),
        state="",
        answer=first,
        warnings=tuple(_warnings(of)),
        sections=(
            *((Section("Break-even", items=tuple(map(Item, others))),) if others else ()),
            *_tables(of),
            *runs_section((one.label, one.runs) for one in of.sides),
            _method(of),
        ),
    )


def sentence(one: BreakEven) -> str:
    """``costs 17 s more and saves 17 ms a step, 1.48 times faster: break-even at step 1,016``."""
    head, apart = f"{one.run} against {one.against}", one.difference
    if apart is None:
        return f"{head}: unknown: one of them has no clean step."
    if one.saves_seconds is None:
        return f"{head}: {speed(apart)}; no break-even, as one of them has no known cost."
    costs, times = _costs(one.cost_seconds or 0.0), amounts.faster(apart.ratio)
    if not apart.claimed:
        measured = f"its steps are {times}" if times != "as fast" else "its steps take as long"
        return f"{head}: {costs}; {measured}, {_NOT_CLAIMED[apart.verdict]}{_if_so(one)}."
    each = f"{took(abs(one.saves_seconds))} {_range(one)}"
    if one.saves_seconds < 0:
        text = f"{head}: {costs} and makes each step {each} longer, {times}"
        until = f"ahead until step {one.step:,}{_between(one)}" if one.step else "never breaks even"
        return f"{text}: {until}."
    saves = f"{costs} and saves {each} a step, {times}"
    if one.outcome == "at_once":
        return f"{head}: {saves}: ahead from the first step."
    return f"{head}: {saves}: break-even at step {one.step:,}{_between(one)}."


_NOT_CLAIMED = {
    WITHIN_NOISE: "which is within the noise between runs",
    ONCE: "not known whether that is more than noise: run each twice or more, in turn",
    DISTURBED: "but other work slowed the runs of one of them: measure again without it",
    SAME: "and both are runs of one program, as far as recorded: name a changed one differently",
}
_SHORTLY = {
    WITHIN_NOISE: "within noise",
    ONCE: "not repeated",
    DISTURBED: "disturbed",
    SAME: "same program",
}


def shortly(of: Difference) -> str:
    """Why no difference is claimed."""
    return _SHORTLY[of.verdict]


def speed(of: Difference) -> str:
    """``1.48 times faster (1.41 to 1.55)``; ``1.04 times faster, within noise``."""
    if of.claimed and of.low is not None and of.high is not None:
        ends = sorted((of.low, of.high) if of.ratio > 1 else (1 / of.low, 1 / of.high))
        return f"{amounts.faster(of.ratio)} ({ends[0]:.3g} to {ends[1]:.3g})"
    return f"{amounts.faster(of.ratio)}, {shortly(of)}"


def _if_so(one: BreakEven) -> str:
    """The break-even of runs that were not repeated."""
    return f". If it is, break-even is near step {one.step:,}" if one.step else ""


def _range(one: BreakEven) -> str:
    ends = sorted(abs(end or 0.0) for end in (one.saves_least_seconds, one.saves_most_seconds))
    return f"({took(ends[0])} to {took(ends[1])})"


def _costs(seconds: float) -> str:
    if not seconds:
        return "costs as much"
    return f"costs {took(abs(seconds))} {'more' if seconds > 0 else 'less'}"


def runs_section(programs: Iterable[tuple[str, Sequence[Run]]]) -> Iterator[Section]:
    """``eager: 60.1 ms in a, 46.2 ms in b``; nothing if each ran once, undisturbed."""
    items = dict.fromkeys(f"{label}: {_listed(runs)}" for label, runs in programs if _several(runs))
    if items:
        yield Section("Runs of each program", items=tuple(map(Item, items)))


def _several(runs: Sequence[Run]) -> bool:
    return len(runs) > 1 or any(one.disturbed for one in runs)


def _listed(runs: Sequence[Run]) -> str:
    each = (
        f"{took(one.seconds)} in {one.id}" + (f" ({one.disturbed})" if one.disturbed else "")
        for one in runs
    )
    return ", ".join(each)


def _mean(one: Side) -> str:
    used = len(usable(one.runs))
    if one.mean_seconds is None or len(one.runs) < 2:
        return ""
    return f"{took(one.mean_seconds)}, {counted(used, 'run')}"


CLAIM = (
    "A difference of speed counts if it is larger than the runs of the two programs differ among "
    "themselves, with 95 % confidence (Student's t); runs that other work disturbed are left out."
)


def _between(one: BreakEven) -> str:
    if one.earliest is None or one.latest is None or one.earliest == one.latest:
        return ""
    return f" ({one.earliest:,} to {one.latest:,})"


def _warnings(of: Comparison) -> Iterator[str]:
    if of.unknown:
        yield f"not known for all of them, so not compared: {', '.join(of.unknown)}"
    for one in of.sides:
        if one.slower:
            worst = max(one.slower, key=lambda period: period["ratio"])
            several = f" in {len(one.slower)} periods, the worst" if len(one.slower) > 1 else ""
            text = f"{one.label} was slower than before{several} {slower_period(worst)}"
            yield f"{text}; its {rows.STEADY} and break-even include these steps"
        if one.neighbours:
            most, more = one.neighbours[0], len(one.neighbours) - 1
            others = f"; {counted(more, 'other run')} there, too" if more else ""
            share = f"for {100 * most.share:.0f} % of the time of {one.label}"
            yield f"{most.run} ({most.id}) ran on the same host {share}, which may slow it{others}"


def _differs(of: Comparison, affected: tuple[str, ...]) -> str:
    """The differences that affect these rows, in one sentence."""
    differing = []
    for one in of.incomparable:
        if one.rows == affected:
            pairs = zip(of.sides, one.values, strict=True)
            values = ", ".join(f"{value} in {side.label}" for side, value in pairs)
            differing.append(f"{one.what}: {values}")
    shown = ", ".join(_SPEED if name == rows.SPEED_UP else name for name in affected)
    names = "all times, memory and energy" if affected == rows.ALL else shown
    return f"Not the same {'; '.join(differing)}; this affects {names}."


def _tables(of: Comparison) -> Iterator[Section]:
    first = next(one for one in of.sides if one.label == of.baseline)
    others = [one for one in of.sides if one is not first]
    for at in range(0, max(1, len(others)), _ABREAST - 1):
        yield _side_by_side([first, *others[at : at + _ABREAST - 1]], again=at > 0)


def _side_by_side(sides: Sequence[Side], *, again: bool) -> Section:
    known = [(name, *(words(one) for one in sides)) for name, words in _ROWS]
    shown = [row for row in known if any(row[1:])]
    names = ("", *(f"{one.label}>" for one in sides))
    return Section("Side by side, further runs" if again else "Side by side", table(names, shown))


def _method(of: Comparison) -> Section:
    """How the figures were determined, and their limits."""
    once = (
        "First step, warm-up and compile cost were measured once and have no interval. Compile "
        "cost is what steps took beyond a steady one, or all compile time where that is more."
    )
    sentences = (
        f"Speed and break-even are against {of.baseline}.",
        CLAIM,
        once,
        "Arguments and environment are not recorded: these runs may have differed in them.",
    )
    return Section("How to read it", items=tuple(map(Item, sentences)))


def _warmup(one: Side) -> str:
    steps = "" if one.warmup_steps is None else f", {counted(one.warmup_steps, 'step')}"
    return if_known(lambda seconds: f"{took(seconds)}{steps}", one.warmup_seconds)
