"""The table of modes in words, with remarks on each row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warmwatch.shared.phrases import counted
from warmwatch_monitor.compare.comparison import EAGER, BreakEven
from warmwatch_monitor.compare.difference import DISTURBED, ONCE, WITHIN_NOISE, difference
from warmwatch_monitor.compare.wording import CLAIM, runs_section, sentence, shortly
from warmwatch_monitor.modes.drift import Drift
from warmwatch_monitor.modes.programs import REGIONAL, WITHOUT_CUDA_GRAPHS
from warmwatch_monitor.modes.stopping import FEWEST
from warmwatch_monitor.modes.table import GUARD_SHARE, VARIANTS, Modes, Row, beats
from warmwatch_monitor.output.amounts import energy, faster, if_known, size, took
from warmwatch_monitor.output.document import Document, Item, Section, table

_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("first step", lambda one: if_known(took, one.first_step_seconds)),
    ("its peak memory", lambda one: if_known(size, one.first_step_memory_bytes)),
    ("steady step", lambda one: if_known(took, one.mean_seconds)),
    ("speed-up", lambda one: _times(one)),
    ("compile cost", lambda one: if_known(took, one.cost_seconds) if one.compiled else ""),
    ("peak memory", lambda one: if_known(size, one.peak_memory_bytes)),
    ("peak RSS", lambda one: "" if one.gpus else if_known(size, one.peak_resident_bytes)),
    ("energy a step", lambda one: if_known(energy, one.joules_per_step or None)),
    ("evaluation", lambda one: if_known(took, one.evaluation_seconds)),
    ("its batch", lambda one: if_known(took, one.evaluation_batch_seconds)),
    ("graphs", lambda one: _graphs(one)),
    ("loss drift", lambda one: if_known(_drift, one.drift)),
    ("break-even step", lambda one: _paid_back(one.break_even) if one.captured else ""),
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


def _graphs(one: Row) -> str:
    """The number of graphs; unknown if it was ended in its first compilation."""
    if one.graphs is None or not one.compiled:
        return ""
    cut_off = one.ended_by in _CUT_OFF and one.first_step_seconds is None
    return "unknown" if cut_off and not one.graphs else f"{one.graphs:,}"


def page(of: Modes) -> Document:
    """The whole report."""
    return Document(
        title="Warmwatch: each mode of torch.compile",
        state="",
        answer=_answer(of),
        warnings=tuple(_warnings(of)),
        sections=tuple(one for make in _SECTIONS if (one := make(of))),
    )


def _recommendation(of: Modes) -> Section | None:
    """Which mode to use, in one sentence."""
    best = next((one for one in of.rows if one.mode == of.recommended), None)
    words = _no_recommendation(of) if best is None else f"{''.join(_reasons(best, of))}."
    return Section("Recommendation", items=(Item(words),)) if words else None


def _no_recommendation(of: Modes) -> str:
    verdicts = {one.speed_up.verdict for one in of.rows if one.speed_up and one.captured}
    if verdicts & _UNKNOWN and any(run.disturbed for one in of.rows for run in one.runs):
        return "None: other work slowed the runs, so measure again without it."
    if ONCE in verdicts:
        return "None: a single run of a mode does not show how much its runs differ (--rounds 2)."
    return ""


def _reasons(best: Row, of: Modes) -> Iterator[str]:
    yield f"For {of.recommended_steps:,} steps, use {best.mode}"
    if best.mode == of.baseline:
        yield ": no measured mode takes less time"
        yield " beyond noise" if any(_is_within_noise(one) for one in of.rows) else ""
    elif (pays := best.break_even) is not None and best.speed_up is not None:
        if pays.outcome == "ahead_until":
            less = took(-(pays.cost_seconds or 0.0))
            yield f": its compile cost is {less} less than {of.baseline}'s"
            yield f", which longer steps use up by step {pays.step:,}"
        elif _differs(best):
            yield f": {_times(best)} times {of.baseline}'s speed"
        if pays.outcome == "paid_back":
            extra = "" if of.baseline == EAGER else "extra "
            yield f", its {extra}compile cost of {took(pays.cost_seconds or 0.0)} paid back"
            yield f" after {pays.step:,} steps"
    baseline = next((one for one in of.rows if one.mode == of.baseline), None)
    if best.drift is not None:
        yield f"; {_drift_clause(best.drift)}"
    yield _memory_clause(best, baseline)


def _memory_clause(best: Row, baseline: Row | None) -> str:
    if baseline is None or baseline is best:
        return ""
    for name, words in (("peak_memory_bytes", "memory"), ("peak_resident_bytes", "RSS")):
        own, other = getattr(best, name), getattr(baseline, name)
        if own and other:
            return f"; peak {words} {size(own)} ({baseline.mode}: {size(other)})"
    return ""


def _losses(of: Modes) -> Section | None:
    """How far the loss of each mode is from eager's."""
    items = [Item(f"{one.mode}: {_drift_sentence(one.drift)}") for one in of.rows if one.drift]
    unknown = [one.mode for one in of.rows if one.mode != EAGER and not one.drift and one.captured]
    if items and unknown:
        items.append(Item(f"no loss to compare: {', '.join(unknown)}"))
    if (of.noise or 0.0) > (of.max_drift or _NO_SEED):
        words = f"two eager runs differ by {of.noise:.2g}"
        more = ", more than --max-drift" if of.max_drift else ""
        items.append(Item(f"{words}{more}: use the same seed in every run"))
    return Section("Loss compared with eager", items=tuple(items)) if items else None


def _drift(of: Drift) -> str:
    return "not finite" if of.relative is None else f"{of.relative:.2g}"


def _drift_sentence(of: Drift) -> str:
    rank = f" of rank {of.rank}" if of.rank else ""
    at = f"{rank} ({_loss(of.loss)}, eager {_loss(of.eager_loss)})" if of.relative != 0 else ""
    compared = f"{_drift_clause(of, at)}; {counted(of.passes, 'loss', 'losses')} compared"
    if of.noise is not None and of.noise_passes < of.passes:
        return f"{compared}, noise of the first {of.noise_passes:,}"
    return compared


def _drift_clause(of: Drift, at: str = "") -> str:
    """``its loss drifts by 3e-3 at step 50; noise 1e-6``; ``at``: where, in more detail."""
    if of.relative is None:
        text = f"its loss is not comparable from step {of.step:,} on: one of the two is not finite"
    elif not of.relative:
        text = f"its loss equals eager's up to step {of.last_step:,}"
    else:
        text = f"its loss drifts by {of.relative:.2g} at step {of.step:,}"
    text = f"{text}{at}"
    if of.noise is None:
        return text
    within = ", so it may be noise" if 0 < (of.relative or 0.0) <= of.noise else ""
    return f"{text}; noise {of.noise:.2g}{within}"


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


def _answer(of: Modes) -> str:
    """The answer: which mode is best for this training."""
    measured = [one for one in of.rows if one.runs]
    if not measured:
        return "No step could be measured in any mode."
    if not any(one.captured for one in measured):
        if any(one.captured for one in of.rows):
            return "No step could be measured in a mode that compiled."
        return "Nothing was compiled in any mode, so there is nothing to choose."
    # a mode that compiled nothing is eager, so its figures are noise
    captured = [one for one in measured if one.captured or one.mode == EAGER]
    known = [one for one in captured if one.same_as is None]
    totals = [one for one in known if one.total_seconds is not None]
    if of.training_steps and totals:
        shortest = min(totals, key=lambda one: one.total_seconds or 0.0)
        best = next((one for one in totals if one.mode == of.recommended), shortest)
        others = [one for one in totals if one.mode == of.baseline and one is not best]
        compared = "".join(f" ({one.mode}: {took(one.total_seconds or 0.0)})" for one in others)
        spent = took(best.total_seconds or 0.0)
        ties = _ties(best, captured, of.training_steps)
        return f"{of.training_steps:,} steps take {spent} in {best.mode}{compared}{ties}."
    best = min(known, key=lambda one: one.mean_seconds or 0.0)
    gain = f", {_times(best)} times {of.baseline}'s speed" if _differs(best) else ""
    its_step = f"{if_known(took, best.mean_seconds)}{gain}{_ties(best, captured)}"
    return f"The shortest step is {best.mode}'s: {its_step}."


def _ties(best: Row, measured: list[Row], steps: int | None = None) -> str:
    """Modes that do not differ significantly, by step or by the total of ``steps`` steps.

    One with the kernels of another mode is no candidate, but the table may show a shorter step.
    """
    known = [one for one in measured if steps is None or one.total_seconds is not None]
    names = [
        one.mode for one in known if one is not best and not one.same_as and _same(one, best, steps)
    ]
    ties = f"; no significant difference to {', '.join(names)}" if names else ""
    twins = [f"; {one.mode} has the kernels of {one.same_as}" for one in known if one.same_as]
    return ties + "".join(twins)


def _same(one: Row, other: Row, steps: int | None) -> bool:
    found = difference(one.runs, other.runs)
    if found.verdict in _UNKNOWN:
        return False
    if steps is None:
        return not found.claimed
    return not beats(one, other, steps) and not beats(other, one, steps)


def _warnings(of: Modes) -> Iterator[str]:
    if exceeding := [one.mode for one in of.rows if one.max_drift_exceeded]:
        yield f"the loss drifts by more than --max-drift {of.max_drift:g}: {', '.join(exceeding)}"
    if of.imposed:
        yield f"{', '.join(of.imposed)} in the environment holds in every mode"
    for one in of.incomparable:
        yield f"not the same {one.what} in all modes: {', '.join(dict.fromkeys(one.values))}"
    if of.over_budget and of.budget_seconds:
        names = ", ".join(of.over_budget)
        yield f"not tried, over the budget of {took(of.budget_seconds)}: {names}"
    if rest := [one for one in of.untried if one not in of.over_budget]:
        yield f"not tried: {', '.join(rest)}"


def _table(of: Modes) -> Section | None:
    """The table, without columns that are unknown in every mode."""
    names = ["mode", *(f"{name}>" for name, _ in _COLUMNS)]
    rows = [(one.mode, *(words(one) for _, words in _COLUMNS)) for one in of.rows]
    if not any(any(row[1:]) for row in rows):
        return None
    if of.training_steps:
        names.append(f"{of.training_steps:,} steps>")
        totals = [if_known(took, one.total_seconds) for one in of.rows]
        rows = [(*row, total) for row, total in zip(rows, totals, strict=True)]
    return Section("Modes", table(names, rows, sparse=True))


def _runs(of: Modes) -> Section | None:
    programs = ((one.same_as or one.mode, one.runs) for one in of.rows)
    return next(runs_section(programs), None)


def _notes(of: Modes) -> Section | None:
    notes = [(one.mode, list(_of_row(one, of))) for one in of.rows]
    items = [Item(f"{mode}: {words[0]}", tuple(words[1:])) for mode, words in notes if words]
    return Section("Notes", items=tuple(items)) if items else None


def _of_row(one: Row, of: Modes) -> Iterator[str]:
    yield from _end(one)
    yield from _compiled(one, of)
    if one.mode != EAGER and one.compiled:
        yield from _mode(one)
    for name, words in one.conditions.items():
        if one.gpus or name != "cudagraph_skipped":
            yield words
    if one.guard_seconds and one.guard_share and one.guard_share > GUARD_SHARE:
        share = f"{took(one.guard_seconds)} of each step ({100 * one.guard_share:.0f} %)"
        yield f"guard checks take {share}: fewer, larger graphs help"
    if one.agent_errors:
        errors = counted(one.agent_errors, "error")
        yield f"the agent caught {errors} of its own: the mode may not be the requested one"
    if one.others:
        yield f"the script made further runs, which are not in the table: {', '.join(one.others)}"


def _end(one: Row) -> Iterator[str]:
    """How it ended, if that affects its figures."""
    if one.outcome == "failed" and one.state == "lost" and not one.code:
        yield f"{one.summary}{_where(one)}"  # os._exit leaves no exit record
    elif one.outcome == "failed":
        yield f"it failed ({_how(one)}){_where(one)}"
    elif one.outcome == "nothing":
        ended = f"{_BY_US.get(one.ended_by, 'it ended after')} {took(one.seconds)}"
        yield f"no step and no compilation was seen: {ended}{_where(one)}"
    elif one.outcome == "no_steps":
        yield f"no step was seen: {one.summary}"
    elif one.outcome == "unmeasured":
        yield f"no clean step was seen: {one.summary}"
    if one.outcome in ("measured", "unmeasured", "no_steps") and one.ended_by in _CUT_OFF:
        yield f"{_BY_US[one.ended_by]} {took(one.seconds)}, before all of it was measured"
    elif one.outcome == "measured" and (one.clean_steps or 0) < FEWEST:
        yield f"only {counted(one.clean_steps or 0, 'clean step')}: take the figures with care"


def _how(one: Row) -> str:
    code = one.code or 0
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    if not code:
        how = one.state or "its run did"
    return f"{how}, {one.exception}" if one.exception else how


def _where(one: Row) -> str:
    return f"; what it printed is in {one.output}" if one.output else ""


def _compiled(one: Row, of: Modes) -> Iterator[str]:
    """Differences from the first mode that compiled."""
    if one.outcome == "nothing":
        return
    if one.mode != EAGER and not one.compiled and one.steps:
        if not one.conditions:
            yield "nothing was compiled: the script passes nothing to torch.compile"
        return
    like = next((row for row in of.rows if row.mode != EAGER and row.compiled), None)
    if like is None or like is one or one.mode == EAGER:
        return
    differ = [
        f"{_count(one, name)} ({like.mode}: {_count(like, name)})"
        for name in ("graphs", "graph_breaks", "recompiles")
        if getattr(one, name) != getattr(like, name)
    ]
    if differ:
        yield f"other graphs were compiled: {', '.join(differ)}"


def _count(one: Row, name: str) -> str:
    value = getattr(one, name)
    noun = name.replace("_", " ").removesuffix("s")
    return f"{noun}s not known" if value is None else counted(value, noun)


def _mode(one: Row) -> Iterator[str]:
    """Reasons why the mode had no effect."""
    if one.mode == REGIONAL and one.same_as:
        yield "it has no repeated blocks, or they were compiled separately before: as default"
    if one.mode in WITHOUT_CUDA_GRAPHS and not one.gpus:
        same = f"has the kernels of {one.same_as}" if one.same_as else "is as if not requested"
        yield f"CUDA graphs need a GPU and none was used: without them it {same}"
    backends = sorted({way.backend for way in one.wrappings if way.backend != "inductor"})
    if backends:
        yield f"what is compiled by {', '.join(backends)} was left as it is: modes are Inductor's"
    inductor = [way for way in one.wrappings if way.backend == "inductor"]
    other = {way.mode for way in inductor} - {"default" if one.mode in VARIANTS else one.mode}
    if other:
        yield f"the mode could not be imposed everywhere: {', '.join(sorted(other))} held as well"


def _pays(of: Modes) -> Section | None:
    pairs = [(one.break_even, one.against_default) for one in of.rows if one.captured]
    found = [
        one for pair in pairs for one in pair if one is not None and one.saves_seconds is not None
    ]
    items = tuple(Item(sentence(one)) for one in found)
    return Section("Break-even", items=items) if items else None


def _method(of: Modes) -> Section | None:
    if of.baseline is None:
        return None
    caches = (
        "Compile caches were empty at the start of each mode."
        if of.caches == "cold"
        else "Compile caches were left as they were: a mode finds what an earlier one compiled."
    )
    return Section(
        "How to read it",
        items=(
            Item(f"{caches} Speed-up and break-even are against {of.baseline}. {CLAIM}"),
            Item(
                "Compile cost is what steps took beyond a steady one, or all compile time where "
                "that is more; it and the first step were measured once."
            ),
            *_drift_method(of),
        ),
    )


def _drift_method(of: Modes) -> Iterator[Item]:
    if any(one.drift for one in of.rows):
        yield Item(
            "Loss drift is the largest difference from eager's loss at the same backward pass, "
            "divided by the mean magnitude of eager's losses. Noise is that of a second eager run."
        )


_SECTIONS = (_recommendation, _table, _runs, _notes, _losses, _pays, _method)


def _times(one: Row) -> str:
    if one.speed_up is None or not one.captured:
        return ""
    if _is_within_noise(one):
        return shortly(one.speed_up)
    value = one.speed_up.ratio
    times = f"{value:.3g}" if value > 1 else faster(value)
    return times if one.speed_up.claimed else f"{times}, {shortly(one.speed_up)}"


def _differs(one: Row) -> bool:
    """Whether it is faster, or slower, for certain."""
    return one.speed_up is not None and one.captured and one.speed_up.claimed


def _is_within_noise(one: Row) -> bool:
    return one.speed_up is not None and one.speed_up.verdict == WITHIN_NOISE


def _paid_back(of: BreakEven | None) -> str:
    if of is None:
        return ""
    if of.outcome == "paid_back":
        return f"{of.step:,}"
    return {"at_once": "1", "never": "never"}.get(of.outcome, "")
