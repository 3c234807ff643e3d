"""A comparison in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from warmwatch.shared.phrases import counted
from warmwatch_monitor.compare import comparability as rows
from warmwatch_monitor.compare.comparison import BreakEven, Comparison, Measured, Side
from warmwatch_monitor.output import amounts
from warmwatch_monitor.output.amounts import if_known, slower_period, took
from warmwatch_monitor.output.document import Document, Item, Section, table

_ABREAST = 3  # runs in one table; more runs take several tables
_ROWS: tuple[tuple[str, Callable[[Side], str | None]], ...] = (
    ("torch.compile", lambda one: one.mode),
    ("state", lambda one: one.state),
    (rows.FIRST, lambda one: if_known(took, one.first_step_seconds)),
    ("its peak memory", lambda one: if_known(amounts.size, one.first_step_memory_bytes)),
    (rows.FIRST_MEMORY, lambda one: if_known(amounts.size, one.compiled_memory_bytes)),
    (rows.WARMUP, lambda one: _warmup(one)),
    (rows.COST, lambda one: "none" if one.cost_seconds == 0 else if_known(took, one.cost_seconds)),
    ("its GPU-seconds", lambda one: if_known(amounts.number, one.gpu_seconds)),
    (rows.SPENT, lambda one: None if one.joules is None else amounts.energy(one.joules)),
    ("its money", lambda one: None if one.money is None else amounts.money(one.money)),
    (rows.STEADY, lambda one: _length(one.steady)),
    ("99 % within", lambda one: if_known(took, one.steady_p99_seconds)),
    ("clean steps", lambda one: if_known(amounts.number, one.clean_steps)),
    (rows.SPEED_UP, lambda one: _times(one.speed_up)),
    (
        "tokens/s",
        lambda one: amounts.rate(one.tokens_per_second) if one.tokens_per_second else None,
    ),
    (rows.PEAK, lambda one: if_known(amounts.size, one.peak_memory_bytes)),
    (rows.ENERGY, lambda one: amounts.energy(one.joules_per_step) if one.joules_per_step else None),
    ("graphs", lambda one: if_known(amounts.number, one.graphs)),
    ("recompiles", lambda one: if_known(amounts.number, one.recompiles)),
    ("graph breaks", lambda one: if_known(amounts.number, one.graph_breaks)),
)


def page(of: Comparison) -> Document:
    """The whole comparison. Differences come first, because they qualify the costs."""
    affected = dict.fromkeys(one.rows for one in of.incomparable)
    differs = [_differs(of, rows) for rows in affected]
    first, *others = [*differs, *(sentence(one) for one in of.break_even)]
    return Document(
        title="Warmwatch comparison: " + ", ".join(one.label for one in of.sides),
        state="",
        answer=first,
        warnings=tuple(_warnings(of)),
        sections=(
            *((Section("Break-even", items=tuple(map(Item, others))),) if others else ()),
            *_tables(of),
            _method(of),
        ),
    )


def sentence(one: BreakEven) -> str:
    """``compiling costs 17 s and saves 17 ms a step: break-even at step 1,016``."""
    head = f"{one.run} against {one.against}"
    if one.saves is None or one.cost_seconds is None:
        return f"{head}: not known, for one of them has no clean step, or no cost that was seen."
    costs = f"costs {took(abs(one.cost_seconds))} {'more' if one.cost_seconds > 0 else 'less'}"
    if one.outcome == "no_difference":
        saves = _length(one.saves)
        return f"{head}: {costs}, and their steps show no difference beyond noise: {saves}."
    if one.saves.value < 0:
        slower = _length(Measured(value=-one.saves.value, uncertainty=one.saves.uncertainty))
        text = f"{head}: {costs} and makes each step {slower} longer"
        until = f"ahead until step {one.step:,}{_between(one)}" if one.step else "never breaks even"
        return f"{text}: {until}."
    saves = f"{costs} and saves {_length(one.saves)} a step"
    if one.outcome == "at_once":
        return f"{head}: {saves}: ahead from the first step."
    return f"{head}: {saves}: break-even at step {one.step:,}{_between(one)}."


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


def _differs(of: Comparison, affected: tuple[str, ...]) -> str:
    """The differences that affect these rows, in one sentence."""
    differing = []
    for one in of.incomparable:
        if one.rows == affected:
            pairs = zip(of.sides, one.values, strict=True)
            values = ", ".join(f"{value} in {side.label}" for side, value in pairs)
            differing.append(f"{one.what}: {values}")
    names = "all times, memory and energy" if affected == rows.ALL else ", ".join(affected)
    return f"Not the same {'; '.join(differing)}; this affects {names}."


def _tables(of: Comparison) -> Iterator[Section]:
    first = next(one for one in of.sides if one.label == of.baseline)
    others = [one for one in of.sides if one is not first]
    for at in range(0, max(1, len(others)), _ABREAST - 1):
        yield _side_by_side([first, *others[at : at + _ABREAST - 1]], again=at > 0)


def _side_by_side(sides: Sequence[Side], *, again: bool) -> Section:
    shown = [
        (name, *(value or "" for value in values))
        for name, values in ((name, [of(one) for one in sides]) for name, of in _ROWS)
        if any(values)
    ]
    names = ("", *(f"{one.label}>" for one in sides))
    return Section("Side by side, further runs" if again else "Side by side", table(names, shown))


def _method(of: Comparison) -> Section:
    """How the figures were determined, and their limits."""
    measured = any(one.steady and one.steady.uncertainty is not None for one in of.sides)
    items = [Item(f"Speed-up and break-even are against {of.baseline}.")]
    if measured:
        items.append(
            Item(
                "± is a 95 % interval, from how far the clean steps of that one run spread; "
                "another run of the same program may differ by more."
            )
        )
    items.append(
        Item(
            "First step, warm-up and compile cost were measured once and have no interval. Compile "
            "cost is what steps took beyond a steady one, or all compile time where that is more."
        )
    )
    items.append(
        Item("Arguments and environment are not recorded: these runs may have differed in them.")
    )
    return Section("How to read it", items=tuple(items))


def _warmup(one: Side) -> str | None:
    if one.warmup_seconds is None:
        return None
    steps = "" if one.warmup_steps is None else f", {counted(one.warmup_steps, 'step')}"
    return f"{took(one.warmup_seconds)}{steps}"


def _length(of: Measured | None) -> str | None:
    if of is None:
        return None
    text = took(of.value) if of.value >= 0 else f"-{took(-of.value)}"
    return text if of.uncertainty is None else f"{text} ± {took(of.uncertainty)}"


def _times(of: Measured | None) -> str | None:
    if of is None:
        return None
    off = "" if of.uncertainty is None else f" ± {of.uncertainty:.2g}"
    return f"{of.value:.3g}{off}"
