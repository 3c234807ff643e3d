"""The table of modes in words, with remarks on each row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warmwatch.shared.phrases import counted, took
from warmwatch_monitor.commands.compare.comparison import (
    DISTURBED,
    EAGER,
    ONCE,
    WITHIN_NOISE,
    BreakEven,
    difference,
)
from warmwatch_monitor.commands.compare.wording import CLAIM, runs_section, sentence, shortly
from warmwatch_monitor.commands.modes.drift import Drift
from warmwatch_monitor.commands.modes.one_mode import FEWEST
from warmwatch_monitor.commands.modes.table import (
    GUARD_SHARE,
    REGIONAL,
    VARIANTS,
    WITHOUT_CUDA_GRAPHS,
    Modes,
    Row,
    beats,
)
from warmwatch_monitor.output.amounts import energy, faster, if_known, size
from warmwatch_monitor.output.document import Document, Item, Section, table

_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("first step", lambda row: if_known(took, row.first_step_seconds)),
    ("its peak memory", lambda row: if_known(size, row.first_step_memory_bytes)),
    ("steady step", lambda row: if_known(took, row.mean_seconds)),
    ("speed-up", lambda row: _times(row)),
    ("compile cost", lambda row: if_known(took, row.cost_seconds) if row.compiled else ""),
    ("peak memory", lambda row: if_known(size, row.peak_memory_bytes)),
    ("peak RSS", lambda row: "" if row.gpus else if_known(size, row.peak_resident_bytes)),
    ("energy a step", lambda row: if_known(energy, row.joules_per_step or None)),
    ("evaluation", lambda row: if_known(took, row.evaluation_seconds)),
    ("its batch", lambda row: if_known(took, row.evaluation_batch_seconds)),
    ("graphs", lambda row: _graphs(row)),
    ("loss drift", lambda row: if_known(lambda drift: _finite(drift.relative, 2), row.drift)),
    ("break-even step", lambda row: _paid_back(row.break_even) if row.captured else ""),
)
_UNKNOWN = {ONCE, DISTURBED}  # verdicts on too few runs
_NO_SEED = 0.01  # noise of losses of a script without a seed, and rarely of one with a seed
_CUT_OFF = ("budget", "interrupted", "timeout")  # ended before all of it was measured
_BY_US = {
    "timeout": "it was ended at the timeout, after",
    "budget": "it was ended at the end of the budget, after",
    "interrupted": "it was interrupted after",
    "steps": "it was ended after",
    "steady": "it was ended after",
}


def _graphs(row: Row) -> str:
    """The number of graphs; unknown if it was ended in its first compilation."""
    if row.graphs is None or not row.compiled:
        return ""
    cut_off = row.ended_by in _CUT_OFF and row.first_step_seconds is None
    return "unknown" if cut_off and not row.graphs else f"{row.graphs:,}"


def page(modes: Modes) -> Document:
    """The whole report."""
    return Document(
        title="Warmwatch: each mode of torch.compile",
        state="",
        answer=_answer(modes),
        warnings=tuple(_warnings(modes)),
        sections=tuple(section for make in _SECTIONS if (section := make(modes))),
    )


def _recommendation(modes: Modes) -> Section | None:
    """Which mode to use, in one sentence."""
    best = next((row for row in modes.rows if row.mode == modes.recommended), None)
    text = _no_recommendation(modes) if best is None else f"{''.join(_reasons(best, modes))}."
    return Section("Recommendation", items=(Item(text),)) if text else None


def _no_recommendation(modes: Modes) -> str:
    verdicts = {row.speed_up.verdict for row in modes.rows if row.speed_up and row.captured}
    if verdicts & _UNKNOWN and any(run.disturbed for row in modes.rows for run in row.runs):
        return (
            "None: the runs of a mode were slowed (see the runs of each program): measure again "
            "while the machine is quiet, or with more --rounds."
        )
    if ONCE in verdicts:
        return "None: a single run of a mode does not show how much its runs differ."
    return ""


def _reasons(best: Row, modes: Modes) -> Iterator[str]:
    baseline = next((row for row in modes.rows if row.mode == modes.baseline), None)
    yield f"For {modes.recommended_steps:,} steps, use {best.mode}"
    if best is baseline:
        unknown = any(row.speed_up and row.speed_up.verdict in _UNKNOWN for row in modes.rows)
        yield f": no {'comparable' if unknown else 'measured'} mode takes less time"
        yield " beyond noise" if any(_is_within_noise(row) for row in modes.rows) else ""
    elif (pays := best.break_even) is not None and best.speed_up is not None:
        cost = pays.cost_seconds or 0.0
        if pays.outcome == "ahead_until":
            yield f": its compile cost is {took(-cost)} less than {modes.baseline}'s"
            yield f", which longer steps use up by step {pays.step:,}"
        elif _differs(best):
            yield f": {_times(best)} times {modes.baseline}'s speed"
        if pays.outcome == "paid_back":
            extra = "" if modes.baseline == EAGER else "extra "
            yield f", its {extra}compile cost of {took(cost)} paid back after {pays.step:,} steps"
    if best.drift is not None:
        yield f"; {_drift_clause(best.drift)}"
    if baseline is not None and best is not baseline:
        for name, what in (("peak_memory_bytes", "memory"), ("peak_resident_bytes", "RSS")):
            own, other = getattr(best, name), getattr(baseline, name)
            if own and other:
                yield f"; peak {what} {size(own)} ({baseline.mode}: {size(other)})"
                return


def _losses(modes: Modes) -> Section | None:
    """How far the loss of each mode is from eager's."""
    items = [Item(f"{row.mode}: {_drift_sentence(row.drift)}") for row in modes.rows if row.drift]
    unknown = [
        row.mode for row in modes.rows if row.mode != EAGER and not row.drift and row.captured
    ]
    if items and unknown:
        items.append(Item(f"no loss to compare: {', '.join(unknown)}"))
    if (modes.noise or 0.0) > (modes.max_drift or _NO_SEED):
        text = f"two eager runs differ by {modes.noise:.2g}"
        more = ", more than --max-drift" if modes.max_drift else ""
        items.append(Item(f"{text}{more}: use the same seed in every run"))
    return Section("Loss compared with eager", items=tuple(items)) if items else None


def _drift_sentence(drift: Drift) -> str:
    at = f" of rank {drift.rank}" if drift.rank else ""
    at += f" ({_finite(drift.loss)}, eager {_finite(drift.eager_loss)})"
    clause = _drift_clause(drift, at if drift.relative != 0 else "")
    compared = f"{clause}; {counted(drift.passes, 'loss', 'losses')} compared"
    if drift.noise is not None and drift.noise_passes < drift.passes:
        return f"{compared}, noise of the first {drift.noise_passes:,}"
    return compared


def _drift_clause(drift: Drift, at: str = "") -> str:
    """``its loss drifts by 3e-3 at step 50; noise 1e-6``; ``at``: where, in more detail."""
    step = f"{drift.step:,}"
    if drift.relative is None:
        text = f"its loss is not comparable from step {step} on: one of the two is not finite"
    elif not drift.relative:
        text = f"its loss equals eager's up to step {drift.last_step:,}"
    else:
        text = f"its loss drifts by {drift.relative:.2g} at step {step}"
    if drift.noise is None:
        return f"{text}{at}"
    within = ", so it may be noise" if 0 < (drift.relative or 0.0) <= drift.noise else ""
    return f"{text}{at}; noise {drift.noise:.2g}{within}"


def _finite(value: float | None, digits: int = 6) -> str:
    return "not finite" if value is None else f"{value:.{digits}g}"


def _answer(modes: Modes) -> str:
    """The answer: which mode is best for this training."""
    measured = [row for row in modes.rows if row.runs]
    if not measured:
        return "No step could be measured in any mode."
    if not any(row.captured for row in measured):
        if any(row.captured for row in modes.rows):
            return "No step could be measured in a mode that compiled."
        return "Nothing was compiled in any mode, so there is nothing to choose."
    # a mode that compiled nothing is eager, so its figures are noise
    captured = [row for row in measured if row.captured or row.mode == EAGER]
    rows = [row for row in captured if row.same_as is None]
    totals = [row for row in rows if row.total_seconds is not None]
    if modes.training_steps and totals:
        shortest = min(totals, key=lambda total: total.total_seconds or 0.0)
        best = next((total for total in totals if total.mode == modes.recommended), shortest)
        others = [total for total in totals if total.mode == modes.baseline and total is not best]
        compared = "".join(f" ({row.mode}: {took(row.total_seconds or 0.0)})" for row in others)
        spent = took(best.total_seconds or 0.0)
        ties = _ties(best, captured, modes.training_steps)
        return f"{modes.training_steps:,} steps take {spent} in {best.mode}{compared}{ties}."
    best = min(rows, key=lambda item: item.mean_seconds or 0.0)
    gain = f", {_times(best)} times {modes.baseline}'s speed" if _differs(best) else ""
    its_step = f"{if_known(took, best.mean_seconds)}{gain}{_ties(best, captured)}"
    return f"The shortest step is {best.mode}'s: {its_step}."


def _ties(best: Row, measured: list[Row], steps: int | None = None) -> str:
    """Modes that do not differ significantly, by step or by the total of ``steps`` steps.

    One with the kernels of another mode is no candidate, but the table may show a shorter step.
    """
    rows = [row for row in measured if steps is None or row.total_seconds is not None]
    names = [
        row.mode for row in rows if row is not best and not row.same_as and _same(row, best, steps)
    ]
    ties = f"; no significant difference to {', '.join(names)}" if names else ""
    others = (row for row in rows if row is not best and not row.same_as)
    unknown = [row.mode for row in others if difference(row.runs, best.runs).verdict in _UNKNOWN]
    ties += f"; not known whether it differs from {', '.join(unknown)}" if unknown else ""
    twins = [f"; {row.mode} has the kernels of {row.same_as}" for row in rows if row.same_as]
    return ties + "".join(twins)


def _same(row: Row, other: Row, steps: int | None) -> bool:
    result = difference(row.runs, other.runs)
    if result.verdict in _UNKNOWN:
        return False
    if steps is None:
        return not result.claimed
    return not beats(row, other, steps) and not beats(other, row, steps)


def _warnings(modes: Modes) -> Iterator[str]:
    if exceeding := [row.mode for row in modes.rows if row.max_drift_exceeded]:
        names = ", ".join(exceeding)
        yield f"the loss drifts by more than --max-drift {modes.max_drift:g}: {names}"
    if modes.imposed:
        yield f"{', '.join(modes.imposed)} in the environment holds in every mode"
    for incomparable in modes.incomparable:
        values = ", ".join(dict.fromkeys(incomparable.values))
        yield f"not the same {incomparable.what} in all modes: {values}"
    if modes.over_budget and modes.budget_seconds:
        names = ", ".join(modes.over_budget)
        yield f"not tried, over the budget of {took(modes.budget_seconds)}: {names}"
    if rest := [name for name in modes.untried if name not in modes.over_budget]:
        yield f"not tried: {', '.join(rest)}"


def _table(modes: Modes) -> Section | None:
    """The table, without columns that are unknown in every mode."""
    names = ["mode", *(f"{name}>" for name, _ in _COLUMNS)]
    rows = [(item.mode, *(text(item) for _, text in _COLUMNS)) for item in modes.rows]
    if not any(any(row[1:]) for row in rows):
        return None
    if modes.training_steps:
        names.append(f"{modes.training_steps:,} steps>")
        totals = [if_known(took, item.total_seconds) for item in modes.rows]
        rows = [(*row, total) for row, total in zip(rows, totals, strict=True)]
    return Section("Modes", table(names, rows, sparse=True))


def _runs(modes: Modes) -> Section | None:
    programs = ((row.same_as or row.mode, row.runs) for row in modes.rows)
    return next(runs_section(programs), None)


def _notes(modes: Modes) -> Section | None:
    notes = {row.mode: list(_of_row(row, modes)) for row in modes.rows}
    items = tuple(
        Item(f"{mode}: {lines[0]}", tuple(lines[1:])) for mode, lines in notes.items() if lines
    )
    return Section("Notes", items=items) if items else None


def _of_row(row: Row, modes: Modes) -> Iterator[str]:
    yield from _end(row)
    yield from _compiled(row, modes)
    if row.mode != EAGER and row.compiled:
        yield from _mode(row)
    for name, text in row.conditions.items():
        if row.gpus or name != "cudagraph_skipped":
            yield text
    if row.guard_seconds and row.guard_share and row.guard_share > GUARD_SHARE:
        share = f"{took(row.guard_seconds)} of each step ({100 * row.guard_share:.0f} %)"
        yield f"guard checks take {share}: fewer, larger graphs help"
    if row.agent_errors:
        errors = counted(row.agent_errors, "error")
        yield f"the agent caught {errors} of its own: the mode may not be the requested one"
    if row.others:
        yield f"the script made further runs, which are not in the table: {', '.join(row.others)}"


def _end(row: Row) -> Iterator[str]:
    """How it ended, if that affects its figures."""
    if row.outcome == "failed" and row.state == "lost" and not row.code:
        yield f"{row.summary}{_where(row)}"  # os._exit leaves no exit record
    elif row.outcome == "failed":
        yield f"it failed ({_how(row)}){_where(row)}"
    elif row.outcome == "nothing":
        ended = f"{_BY_US.get(row.ended_by, 'it ended after')} {took(row.seconds)}"
        yield f"no step and no compilation was seen: {ended}{_where(row)}"
    elif row.outcome == "no_steps":
        yield f"no step was seen: {row.summary}"
    elif row.outcome == "unmeasured":
        yield f"no clean step was seen: {row.summary}"
    if row.outcome in ("measured", "unmeasured", "no_steps") and row.ended_by in _CUT_OFF:
        yield f"{_BY_US[row.ended_by]} {took(row.seconds)}, before all of it was measured"
    elif row.outcome == "measured" and (row.clean_steps or 0) < FEWEST:
        yield f"only {counted(row.clean_steps or 0, 'clean step')}: take the figures with care"


def _how(row: Row) -> str:
    code = row.code or 0
    how = f"signal {-code}" if code < 0 else f"exit code {code}" if code else row.state
    how = how or "its run did"
    return f"{how}, {row.exception}" if row.exception else how


def _where(row: Row) -> str:
    return f"; what it printed is in {row.output}" if row.output else ""


def _compiled(item: Row, modes: Modes) -> Iterator[str]:
    """Differences from the first mode that compiled."""
    if item.outcome == "nothing":
        return
    if item.mode != EAGER and not item.compiled and item.steps:
        if not item.conditions:
            yield "nothing was compiled: the script passes nothing to torch.compile"
        return
    like = next((row for row in modes.rows if row.mode != EAGER and row.compiled), None)
    if like is None or like is item or item.mode == EAGER:
        return
    differ = [
        f"{_count(item, name)} ({like.mode}: {_count(like, name)})"
        for name in ("graphs", "graph_breaks", "recompiles")
        if getattr(item, name) != getattr(like, name)
    ]
    if differ:
        yield f"other graphs were compiled: {', '.join(differ)}"


def _count(row: Row, name: str) -> str:
    value = getattr(row, name)
    noun = name.replace("_", " ").removesuffix("s")
    return f"{noun}s not known" if value is None else counted(value, noun)


def _mode(row: Row) -> Iterator[str]:
    """Reasons why the mode had no effect."""
    if row.mode == REGIONAL and row.same_as:
        yield "it has no repeated blocks, or they were compiled separately before: as default"
    if row.mode in WITHOUT_CUDA_GRAPHS and not row.gpus:
        same = f"has the kernels of {row.same_as}" if row.same_as else "is as if not requested"
        yield f"CUDA graphs need a GPU and none was used: without them it {same}"
    backends = sorted({way.backend for way in row.wrappings if way.backend != "inductor"})
    if backends:
        yield f"what is compiled by {', '.join(backends)} was left as it is: modes are Inductor's"
    inductor = [way for way in row.wrappings if way.backend == "inductor"]
    other = {way.mode for way in inductor} - {"default" if row.mode in VARIANTS else row.mode}
    if other:
        yield f"the mode could not be imposed everywhere: {', '.join(sorted(other))} held as well"


def _break_even(modes: Modes) -> Section | None:
    compared = (even for row in modes.rows if row.captured for even in row.break_evens)
    items = tuple(Item(sentence(even)) for even in compared if even.saves_seconds is not None)
    return Section("Break-even", items=items) if items else None


def _method(modes: Modes) -> Section | None:
    if modes.baseline is None:
        return None
    caches = "Compile caches were left as they were: a mode finds what an earlier one compiled."
    if modes.caches == "cold":
        caches = "Compile caches were empty at the start of each mode."
    cost = (
        "Compile cost is what steps took beyond a steady one, or all compile time where that is "
        "more; it and the first step are of one run."
    )
    against = f"Speed-up and break-even are against {modes.baseline}."
    sentences = [f"{caches} {against} {CLAIM}", cost]
    if any(row.drift for row in modes.rows):
        sentences.append(
            "Loss drift is the largest difference from eager's loss at the same backward pass, "
            "divided by the mean magnitude of eager's losses. Noise is that of a second eager run."
        )
    return Section("How to read it", items=tuple(map(Item, sentences)))


_SECTIONS = (_recommendation, _table, _runs, _notes, _losses, _break_even, _method)


def _times(row: Row) -> str:
    if row.speed_up is None or not row.captured:
        return ""
    if _is_within_noise(row):
        return shortly(row.speed_up)
    value = row.speed_up.ratio
    times = f"{value:.3g}" if value > 1 else faster(value)
    return times if row.speed_up.claimed else f"{times}, {shortly(row.speed_up)}"


def _differs(row: Row) -> bool:
    """Whether it is faster, or slower, for certain."""
    return row.speed_up is not None and row.captured and row.speed_up.claimed


def _is_within_noise(row: Row) -> bool:
    return row.speed_up is not None and row.speed_up.verdict == WITHIN_NOISE


def _paid_back(break_even: BreakEven | None) -> str:
    if break_even is None:
        return ""
    if break_even.outcome == "paid_back":
        return f"{break_even.step:,}"
    return {"at_once": "1", "never": "never"}.get(break_even.outcome, "")
