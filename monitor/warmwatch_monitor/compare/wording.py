"""A comparison in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from warmwatch.shared.phrases import counted
from warmwatch_monitor.compare import comparability as rows
from warmwatch_monitor.compare.comparison import BreakEven, Comparison, Measured, Side
from warmwatch_monitor.compare.noise import Noise
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
    (rows.STEADY, lambda one: if_known(length, one.steady)),
    ("99 % within", lambda one: if_known(took, one.steady_p99_seconds)),
    ("clean steps", lambda one: if_known(amounts.number, one.clean_steps)),
    (
        _SPEED,
        lambda one: if_known(lambda of: amounts.faster(of.value, of.uncertainty), one.speed_up),
    ),
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
    speeds = {one.label: one.speed_up for one in of.sides}
    first, *others = [*differs, *(sentence(one, speeds.get(one.run)) for one in of.break_even)]
    return Document(
        title="Warmwatch comparison: " + ", ".join(one.label for one in of.sides),
        state="",
        answer=first,
        warnings=tuple(_warnings(of)),
        sections=(
            *((Section("Break-even", items=tuple(map(Item, others))),) if others else ()),
            *_tables(of),
            *((noise_section(of.noise),) if any(one.steady for one in of.sides) else ()),
            _method(of),
        ),
    )


def sentence(one: BreakEven, speed_up: Measured | None = None) -> str:
    """``compiling costs 17 s and saves 17 ms a step: break-even at step 1,016``."""
    times = f", {amounts.faster(speed_up.value)}" if speed_up else ""
    head = f"{one.run} against {one.against}"
    if one.saves is None or one.cost_seconds is None:
        return f"{head}: unknown: one of them has no clean step, or no known cost."
    costs = _costs(one.cost_seconds)
    if one.outcome == "no_difference":
        apart = length(replace(one.saves, value=abs(one.saves.value)))
        way = "shorter" if one.saves.value > 0 else "longer"
        return f"{head}: {costs}; their steps do not differ beyond noise: {apart} {way}."
    if one.saves.value < 0:
        slower = length(replace(one.saves, value=-one.saves.value))
        text = f"{head}: {costs} and makes each step {slower} longer{times}"
        until = f"ahead until step {one.step:,}{_between(one)}" if one.step else "never breaks even"
        return f"{text}: {until}."
    saves = f"{costs} and saves {length(one.saves)} a step{times}"
    if one.outcome == "at_once":
        return f"{head}: {saves}: ahead from the first step."
    return f"{head}: {saves}: break-even at step {one.step:,}{_between(one)}."


def _costs(seconds: float) -> str:
    if not seconds:
        return "costs as much"
    return f"costs {took(abs(seconds))} {'more' if seconds > 0 else 'less'}"


INTERVAL = "a 95 % interval from the clean steps of the run and the noise between runs"


def noise_section(of: Noise) -> Section:
    """How far runs of one program are apart."""
    return Section("Noise between runs", items=tuple(map(Item, _noise(of))))


def _noise(of: Noise) -> Iterator[str]:
    """``the same program: 16.4 ms in eager, 17.1 ms in eager again``; what may be noise."""
    for one in of.repeats:
        pairs = zip(one.runs, map(took, one.seconds), strict=True)
        program = "the same program" if one.program in one.runs else one.program
        yield f"{program}: {', '.join(f'{step} in {run}' for run, step in pairs)}"
    share = f"{100 * of.difference:.2g} %"
    if not of.measured:
        none = "no other run repeats one of these"
        yield f"not measured, as {none}: less than {share} counts as noise"
    elif of.difference < 1:
        yield f"a difference of less than {share} may be noise"
    else:
        yield "any difference may be noise: measure on an idle machine"


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
    interval = (f"± is {INTERVAL}.",) if any(one.steady for one in of.sides) else ()
    once = (
        "First step, warm-up and compile cost were measured once and have no interval. Compile "
        "cost is what steps took beyond a steady one, or all compile time where that is more."
    )
    sentences = (
        f"Speed and break-even are against {of.baseline}.",
        *interval,
        once,
        "Arguments and environment are not recorded: these runs may have differed in them.",
    )
    return Section("How to read it", items=tuple(map(Item, sentences)))


def _warmup(one: Side) -> str:
    steps = "" if one.warmup_steps is None else f", {counted(one.warmup_steps, 'step')}"
    return if_known(lambda seconds: f"{took(seconds)}{steps}", one.warmup_seconds)


def length(of: Measured) -> str:
    """``33.6 ± 0.3 ms``."""
    return amounts.within(of.value, of.uncertainty)
