"""A comparison in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from warmwatch.shared.phrases import counted, took
from warmwatch_monitor.commands.compare import comparability as rows
from warmwatch_monitor.commands.compare.comparison import (
    DISTURBED,
    ONCE,
    SAME,
    WITHIN_NOISE,
    BreakEven,
    Comparison,
    Difference,
    Run,
    Side,
    usable,
)
from warmwatch_monitor.output import amounts
from warmwatch_monitor.output.amounts import energy, if_known, rate, size, slower_period
from warmwatch_monitor.output.document import Document, Item, Section, table
from warmwatch_monitor.status.words.states import ended_in_words

_SPEED = "speed"  # the row of the speed-up, which may be a slow-down
_MEAN = "mean of its runs"
_ABREAST = 3  # runs in one table; more runs take several tables
_ROWS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("torch.compile", lambda side: side.mode or ""),
    ("state", lambda side: ended_in_words(side.state, side.end.how if side.end else None)),
    (rows.FIRST, lambda side: if_known(took, side.first_step_seconds)),
    ("its peak memory", lambda side: if_known(size, side.first_step_memory_bytes)),
    (rows.FIRST_MEMORY, lambda side: if_known(size, side.compiled_memory_bytes)),
    (rows.WARMUP, lambda side: _warmup(side)),
    (
        rows.COST,
        lambda side: "none" if side.cost_seconds == 0 else if_known(took, side.cost_seconds),
    ),
    ("its GPU-seconds", lambda side: if_known(amounts.number, side.gpu_seconds)),
    (rows.SPENT, lambda side: if_known(energy, side.joules)),
    (rows.STEADY, lambda side: if_known(took, side.steady_seconds)),
    ("with all between steps", lambda side: if_known(took, side.whole_step_seconds)),
    (_MEAN, lambda side: _mean(side)),
    ("99 % within", lambda side: if_known(took, side.steady_p99_seconds)),
    ("clean steps", lambda side: if_known(amounts.number, side.clean_steps)),
    (_SPEED, lambda side: if_known(speed, side.speed_up)),
    ("tokens/s", lambda side: if_known(rate, side.tokens_per_second or None)),
    (rows.PEAK, lambda side: if_known(size, side.peak_memory_bytes)),
    (rows.ENERGY, lambda side: if_known(energy, side.joules_per_step or None)),
    ("graphs", lambda side: if_known(amounts.number, side.graphs)),
    ("recompiles", lambda side: if_known(amounts.number, side.recompiles)),
    ("graph breaks", lambda side: if_known(amounts.number, side.graph_breaks)),
)


def page(comparison: Comparison) -> Document:
    """The whole comparison. Differences come first, because they qualify the costs."""
    affected = dict.fromkeys(incomparable.rows for incomparable in comparison.incomparable)
    differs = [_differs(comparison, rows) for rows in affected]
    costs = [*_break_even(comparison)]
    first = f"{differs.pop(0)}." if differs else costs.pop(0)
    return Document(
        title="Warmwatch comparison: " + ", ".join(side.label for side in comparison.sides),
        state="",
        answer=first,
        warnings=(*differs, *_warnings(comparison)),
        sections=(
            *((Section("Break-even", items=tuple(map(Item, costs))),) if costs else ()),
            *_tables(comparison),
            *runs_section(_programs(comparison.sides)),
            _method(comparison),
        ),
    )


def _break_even(comparison: Comparison) -> Iterator[str]:
    """A sentence for each run; those of the baseline's program share one, and of another program
    only the first has the speed.
    """
    same = [one.run for one in comparison.break_even if _is_same(one)]
    if same:
        *names, last = comparison.baseline, *same
        yield (
            f"{', '.join(names)} and {last} ran the same program, as far as recorded, so a "
            "difference counts as noise. If you changed it, name each version (--run NAME)."
        )
    programs = {side.label: frozenset(side.runs) for side in comparison.sides}
    first = dict[frozenset[Run], str]()
    for one in comparison.break_even:
        if not _is_same(one):
            program = programs[one.run]
            yield _same_program(one, first[program]) if program in first else sentence(one)
            if program:
                first.setdefault(program, one.run)


def _is_same(one: BreakEven) -> bool:
    return one.difference is not None and one.difference.verdict == SAME


def _same_program(one: BreakEven, first: str) -> str:
    """``gan (b), of the same program as gan (a): costs 18 s more; break-even near step 259``."""
    head = f"{one.run}, of the same program as {first}"
    if one.cost_seconds is None:
        return f"{head}: no known cost."
    ahead = "ahead until" if one.outcome == "ahead_until" else "break-even near"
    step = f"; {ahead} step {one.step:,}" if one.step else ""
    return f"{head}: {_costs(one.cost_seconds)}{step}."


def sentence(break_even: BreakEven) -> str:
    """``costs 17 s more and saves 17 ms a step, 1.48 times faster: break-even at step 1,016``."""
    head, apart = f"{break_even.run} against {break_even.against}", break_even.difference
    if apart is None:
        return f"{head}: unknown: one of them has no clean step."
    if break_even.saves_seconds is None:
        return f"{head}: {speed(apart)}; no break-even, as one of them has no known cost."
    costs, times = _costs(break_even.cost_seconds or 0.0), amounts.faster(apart.ratio)
    if not apart.claimed:
        measured = f"its steps are {times}" if times != "as fast" else "its steps take as long"
        return f"{head}: {costs}; {measured}, {_NOT_CLAIMED[apart.verdict]}{_if_so(break_even)}."
    each = f"{took(abs(break_even.saves_seconds))} {_range(break_even)}"
    if break_even.saves_seconds < 0:
        text = f"{head}: {costs} and makes each step {each} longer, {times}"
        until = (
            f"ahead until step {break_even.step:,}{_between(break_even)}"
            if break_even.step
            else "never breaks even"
        )
        return f"{text}: {until}."
    saves = f"{costs} and saves {each} a step, {times}"
    if break_even.outcome == "at_once":
        return f"{head}: {saves}: ahead from the first step."
    return f"{head}: {saves}: break-even at step {break_even.step:,}{_between(break_even)}."


_NOT_CLAIMED = {
    WITHIN_NOISE: "which is within the noise between runs",
    ONCE: "not known whether that is more than noise: run each twice or more, in turn",
    DISTURBED: (
        "but runs were slowed (see the runs of each program), so speed and break-even are "
        "unknown: measure again while the machine is quiet"
    ),
}
_SHORTLY = {
    WITHIN_NOISE: "within noise",
    ONCE: "not repeated",
    DISTURBED: "disturbed",
    SAME: "same program",
}


def shortly(difference: Difference) -> str:
    """Why no difference is claimed."""
    return _SHORTLY[difference.verdict]


def speed(difference: Difference) -> str:
    """``1.48 times faster (1.41 to 1.55)``; ``1.04 times faster, within noise``."""
    if difference.claimed and difference.low is not None and difference.high is not None:
        ends = sorted(
            (difference.low, difference.high)
            if difference.ratio > 1
            else (1 / difference.low, 1 / difference.high)
        )
        return f"{amounts.faster(difference.ratio)} ({ends[0]:.3g} to {ends[1]:.3g})"
    return f"{amounts.faster(difference.ratio)}, {shortly(difference)}"


def _if_so(break_even: BreakEven) -> str:
    """The break-even of runs that were not repeated."""
    return f". If it is, break-even is near step {break_even.step:,}" if break_even.step else ""


def _range(break_even: BreakEven) -> str:
    ends = sorted(
        abs(end or 0.0) for end in (break_even.saves_least_seconds, break_even.saves_most_seconds)
    )
    return f"({took(ends[0])} to {took(ends[1])})"


def _costs(seconds: float) -> str:
    if not seconds:
        return "costs as much"
    return f"costs {took(abs(seconds))} {'more' if seconds > 0 else 'less'}"


def runs_section(programs: Iterable[tuple[str, Sequence[Run]]]) -> Iterator[Section]:
    """``gan: 60.1 ms in a (compile cost 12 s), 46.2 ms in b (compile cost 9.1 s)``; nothing if each
    ran once, undisturbed.
    """
    items = dict.fromkeys(
        f"{label}: {_listed(runs)}"
        for label, runs in programs
        if len(runs) > 1 or any(run.disturbed for run in runs)
    )
    if items:
        yield Section("Runs of each program", items=tuple(map(Item, items)))


def _listed(runs: Sequence[Run]) -> str:
    return ", ".join(f"{took(run.seconds)} in {run.id}{_known_of(run)}" for run in runs)


def _known_of(run: Run) -> str:
    cost = f"compile cost {took(run.cost_seconds)}" if run.cost_seconds else ""
    known = "; ".join(filter(None, (cost, run.disturbed)))
    return f" ({known})" if known else ""


def _mean(side: Side) -> str:
    used = len(usable(side.runs))
    if side.mean_seconds is None or used < 2:  # one: its steady step
        return ""
    return f"{took(side.mean_seconds)}, {counted(used, 'run')}"


CLAIM = (
    "A difference of speed counts if it is larger than the runs of the two programs differ among "
    "themselves, with 95 % confidence (Student's t); runs that were slowed for a time are left out."
)


def _between(break_even: BreakEven) -> str:
    if (
        break_even.earliest is None
        or break_even.latest is None
        or break_even.earliest == break_even.latest
    ):
        return ""
    return f" ({break_even.earliest:,} to {break_even.latest:,})"


def _warnings(comparison: Comparison) -> Iterator[str]:
    if comparison.unknown:
        yield f"known for some of them only, so not compared: {', '.join(comparison.unknown)}"
    for side in comparison.sides:
        if side.slower:
            worst = max(side.slower, key=lambda period: period.ratio)
            several = f" in {len(side.slower)} periods, the worst" if len(side.slower) > 1 else ""
            text = f"{side.label} was slower than before{several} {slower_period(worst)}"
            yield f"{text}; its {rows.STEADY} and break-even include these steps"
    yield from _beside(comparison.sides)


def _beside(sides: Sequence[Side]) -> Iterator[str]:
    """The longest neighbour of each; two compared runs that are each other's share a sentence."""
    by_id, told = {side.id: side for side in sides}, set[str]()
    for side in sides:
        if not side.neighbours or side.id in told:
            continue
        most = side.neighbours[0]
        other = by_id.get(most.id)
        others = {neighbour.id for neighbour in side.neighbours} - {most.id}
        if other is not None and other.neighbours and other.neighbours[0].id == side.id:
            told.add(other.id)
            others |= {neighbour.id for neighbour in other.neighbours} - {side.id}
            shares = f"{_percent(most.share)} and {_percent(other.neighbours[0].share)}"
            text = f"{side.label} and {other.label} ran on the same host at the same time, for "
            text += f"{shares} of their time, which may slow both"
        else:
            text = f"{most.run} ran on the same host for {_percent(most.share)} of the time of "
            text += f"{side.label}, which may slow it"
        yield text + (f"; {counted(len(others), 'other run')} there, too" if others else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _differs(comparison: Comparison, affected: tuple[str, ...]) -> str:
    """The differences that affect these rows, in one sentence."""
    differing = []
    for incomparable in comparison.incomparable:
        if incomparable.rows == affected:
            of_each: dict[str, list[Side]] = {}
            for side, value in zip(comparison.sides, incomparable.values, strict=True):
                of_each.setdefault(value, []).append(side)
            values = (
                f"{value} in {_named(sides, comparison.sides)}" for value, sides in of_each.items()
            )
            differing.append(f"{incomparable.what}: {', '.join(values)}")
    empty = {name for name, text in _ROWS if not any(text(side) for side in comparison.sides)}
    shown = [_SPEED if name == rows.SPEED_UP else name for name in affected if name not in empty]
    names = "all times, memory and energy" if affected == rows.ALL else ", ".join(shown)
    return f"Not the same {'; '.join(differing)}; this affects {names}"


def _named(sides: Sequence[Side], among: Sequence[Side]) -> str:
    """Their names: of a name of which they are all runs without ids, once."""
    left = {side.run for side in among if side not in sides}
    return " and ".join(
        dict.fromkeys(side.label if side.run in left else side.run for side in sides)
    )


def _programs(sides: Sequence[Side]) -> Iterator[tuple[str, Sequence[Run]]]:
    """The runs of each program, once."""
    of_each: dict[frozenset[str], list[Side]] = {}
    for side in sides:
        of_each.setdefault(frozenset(run.id for run in side.runs), []).append(side)
    for same in of_each.values():
        yield _named(same, sides), same[0].runs


def _tables(comparison: Comparison) -> Iterator[Section]:
    first = next(side for side in comparison.sides if side.label == comparison.baseline)
    others = [side for side in comparison.sides if side is not first]
    for at in range(0, max(1, len(others)), _ABREAST - 1):
        yield _side_by_side([first, *others[at : at + _ABREAST - 1]], again=at > 0)


def _side_by_side(sides: Sequence[Side], *, again: bool) -> Section:
    groups = [(name, *(text(side) for side in sides)) for name, text in _ROWS]
    if len({frozenset(run.id for run in side.runs) for side in sides}) == 1:
        groups = [row for row in groups if row[0] != _MEAN]  # one program: one mean
    shown = [row for row in groups if any(row[1:])]
    names = ("", *(f"{side.label}>" for side in sides))
    return Section("Side by side, further runs" if again else "Side by side", table(names, shown))


def _method(comparison: Comparison) -> Section:
    """How the figures were determined, and their limits."""
    once = (
        "First step, warm-up and compile cost are of one run and have no interval: the runs of "
        "each program show how compile cost differs. It is what steps took beyond a steady one, or "
        "all compile time where that is more."
    )
    sentences = (
        f"Speed and break-even are against {comparison.baseline}.",
        CLAIM,
        once,
        "Arguments and environment are not recorded: these runs may have differed in them.",
    )
    return Section("How to read it", items=tuple(map(Item, sentences)))


def _warmup(side: Side) -> str:
    steps = "" if side.warmup_steps is None else f", {counted(side.warmup_steps, 'step')}"
    return if_known(lambda seconds: f"{took(seconds)}{steps}", side.warmup_seconds)
