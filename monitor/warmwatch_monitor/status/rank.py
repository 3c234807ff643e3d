"""One rank of the ``/status`` document: state, steps, pauses, throughput."""

from __future__ import annotations

from msgspec import convert

from warmwatch_monitor.model import (
    DTYPE,
    Figures,
    Frame,
    LimitedBy,
    LongStep,
    Memory,
    RankView,
    Slower,
    SlowerPeriod,
    Steps,
    Warmups,
    WarmupSpan,
    Worth,
    beyond_steady_seconds,
    gain,
)
from warmwatch_monitor.model.throughput import COUNTED
from warmwatch_monitor.status.compile import compiler
from warmwatch_monitor.status.schema import rank as schema
from warmwatch_monitor.status.words.conditions import conditions
from warmwatch_monitor.status.words.ends import how
from warmwatch_monitor.status.words.evidence import evidence, is_evaluation, words


def warmup(warmups: Warmups) -> schema.Warmup:
    """The latest warm-up, how many there were, and the first one."""
    latest = warmup_span(warmups.latest)
    return schema.Warmup(
        ended=warmups.latest is not None,
        ended_at=latest.ended_at,
        seconds=latest.seconds,
        steps=latest.steps,
        count=warmups.count,
        first=None if warmups.first is None else warmup_span(warmups.first),
    )


def warmup_span(span: WarmupSpan | None) -> schema.WarmupSpan:
    """The length of a warm-up; null until it has ended."""
    if span is None:
        return schema.WarmupSpan()
    return schema.WarmupSpan(ended_at=span.ended_at, seconds=span.seconds, steps=span.steps)


def step_seconds(steps: Steps) -> schema.StepSeconds:
    """Lengths of single steps and of clean steps."""
    return schema.StepSeconds(
        first=steps.first_seconds,
        first_at=steps.first_at,
        last=steps.last_seconds,
        recent=steps.recent_seconds,
        recent_steps=steps.recent_count,
        median=steps.clean.median,
        p99=steps.clean.p99,
        typical=steps.clean.typical,
        median_low=steps.clean.median_low,
        median_high=steps.clean.median_high,
        clean_count=steps.clean.count,
        clean_seconds=steps.clean.sum_seconds,
    )


def long_step(one: LongStep) -> schema.LongStep:
    """A step that took far longer than usual without compilation, and its known causes."""
    return schema.LongStep(
        step=one.step,
        seconds=one.seconds,
        usual_seconds=one.usual_seconds,
        checkpoint_seconds=one.saving_seconds,
        evaluation_seconds=one.evaluating_seconds,
        between_cells_seconds=one.between_cells_seconds,
        data_seconds=one.data_seconds,
        batches=one.batches,
        evaluation=is_evaluation(one) or one.evaluating_seconds > 0,
        words=words(one),
    )


def slower(known: Slower) -> schema.Slower:
    """How a rank is slower than before, since its warm-up."""
    return schema.Slower(
        ratio=known.ratio,
        seconds=known.seconds,
        before=known.before,
        since_step=known.since_step,
        causes=None if known.causes is None else list(known.causes),
    )


def memory_growing(view: RankView) -> schema.MemoryGrowth | None:
    """How its memory grows."""
    known = view.memory_growth
    return None if known is None else convert(known, schema.MemoryGrowth, from_attributes=True)


def workers_memory(view: RankView) -> schema.WorkersMemory | None:
    """Its compile workers, if they use up memory."""
    known = view.workers_memory
    return None if known is None else convert(known, schema.WorkersMemory, from_attributes=True)


def slower_period(one: SlowerPeriod) -> schema.SlowerPeriod:
    """A period in which a rank was slower than before."""
    return schema.SlowerPeriod(
        began_at=one.began_at,
        ended_at=one.ended_at,
        since_step=one.since_step,
        until_step=one.until_step,
        seconds=one.seconds,
        before=one.before,
        ratio=one.ratio,
        causes=list(one.causes),
    )


def limited_by(known: LimitedBy | None) -> schema.LimitedBy | None:
    """What limits the speed."""
    if known is None:
        return None
    return schema.LimitedBy(verdict=known.verdict, share=known.share, evidence=list(known.evidence))


def batches(steps: Steps) -> schema.Batches | None:
    """Batches of DataLoaders, and the time waiting for them; ``None``: not known."""
    if steps.batches is None:
        return None
    waited = steps.batch_wait_seconds if steps.batches else None
    return schema.Batches(count=steps.batches, wait_seconds=waited)


def pauses(view: RankView) -> schema.Pauses:
    """Waits of the training other than compilation."""
    known, given = view.figures.pauses, batches(view.figures.steps)
    return schema.Pauses(
        data_seconds=given.wait_seconds if given else None,
        checkpoint_seconds=known.saving_seconds,
        saving_since=known.saving_since,
        evaluations=known.evaluations,
        evaluation_seconds=known.evaluating_seconds,
        evaluation_batch_seconds=known.evaluation_batch_seconds,
        evaluating_since=known.evaluating_since,
        between_cells_since=known.between_cells_since,
    )


def cost(steps: Steps) -> schema.Cost:
    """Compile cost so far: how much longer the affected steps took than clean steps."""
    return schema.Cost(
        first_step_seconds=steps.first_seconds,
        steady_step_seconds=steps.clean.median,
        beyond_steady_seconds=beyond_steady_seconds(steps),
        steps_touched=steps.touched.count,
    )


def baseline(figures: Figures) -> schema.Baseline | None:
    """The eager baseline, if there is one, and the gain from compiling."""
    eager, known = figures.baseline, gain(figures)
    if eager is None:
        return None
    return schema.Baseline(
        steps=eager.steps,
        seconds=eager.seconds,
        speed_up=known.speed_up if known else None,
        break_even_steps=known.break_even_steps if known else None,
        paid_back_at_step=known.paid_back_at if known else None,
    )


def rank(view: RankView, *, ended_together: bool | None = None) -> schema.Rank:
    """A rank as JSON; ``ended_together`` is its run's."""
    figures, judgement = view.figures, view.judgement
    return schema.Rank(
        rank=view.rank,
        state=judgement.state,
        attached_at=figures.who.attached_at,
        since=figures.progress.state_since,
        steps=figures.steps.count,
        clean_steps=judgement.clean_steps,
        last_step_age_seconds=figures.progress.last_step_age_seconds,
        compile=compiler(view),
        warm_by=judgement.warm_by,
        warmup=warmup(figures.warmups),
        step_seconds=step_seconds(figures.steps),
        long_steps=[long_step(one) for one in figures.log.long_steps],
        slower=None if view.slower is None else slower(view.slower),
        slower_periods=[slower_period(one) for one in view.slower_periods],
        limited_by=limited_by(view.limited_by),
        memory_growing=memory_growing(view),
        workers_memory=workers_memory(view),
        batches=batches(figures.steps),
        pauses=pauses(view),
        cost=cost(figures.steps),
        baseline=baseline(view.figures),
        worth=_worth(view),
        conditions=[
            schema.Condition(condition=name, words=words) for name, words in conditions(view)
        ],
        gpus=list(view.gpu_uuids),
        energy=_energy(view),
        evidence=evidence(view),
        pid=figures.life.pid,
        host=figures.who.host,
        attempt=figures.who.attempt,
        collective_timeout_seconds=figures.who.collective_timeout_seconds,
        collective_backend=figures.who.collective_backend,
        alive=figures.life.alive,
        end=ending(view, ended_together),
        process=_process(view),
        torch_memory_bytes=_memory(figures.memory),
        agent_errors=figures.agent.errors,
        journal_unread_bytes=figures.agent.incomplete_bytes,
    )


def ending(view: RankView, ended_together: bool | None) -> schema.End | None:
    """Its end; ``None`` while it lives."""
    ended, life = how(view), view.figures.life
    if ended is None:
        return None
    return schema.End(
        how=ended,
        exit_code=life.exit_code,
        exception=life.exception,
        place=None if life.raised is None else _place(life.raised),
        signal=life.signal,
        out_of_memory=view.oom_killed,
        ended_together=ended_together,
    )


def _place(frame: Frame) -> schema.Place:
    return schema.Place(name=frame.name, file=frame.file, line=frame.line)


def _worth(view: RankView) -> schema.Worth | None:
    """Work per step and recent throughput; ``None``: the work is not known."""
    worth, mfu = view.figures.worth, view.utilization
    if worth == Worth():
        return None
    seconds = view.figures.steps.length
    return schema.Worth(
        tokens_per_second=worth.tokens / seconds if worth.tokens and seconds else None,
        samples_per_second=worth.samples / seconds if worth.samples and seconds else None,
        mfu_ratio=mfu.ratio if mfu else None,
        tokens_per_step=worth.tokens,
        samples_per_step=worth.samples,
        flops_per_step=worth.operations,
        formula=worth.origin,
        excluded=list(worth.excluded) if worth.origin == COUNTED else [],
        parameters=worth.parameters,
        estimated=worth.estimated,
        dtype=worth.dtype or DTYPE,
        peak_flops=mfu.peak_flops if mfu else None,
    )


def _energy(view: RankView) -> schema.Energy | None:
    """``covered_seconds`` is the compile time that ``compile_joules`` covers: less than the
    rank's if the monitor started late.
    """
    if view.spending is None:
        return None
    return schema.Energy(
        compile_joules=view.compile_joules,
        covered_seconds=view.spending.compile_seconds,
        joules_per_clean_step=view.joules_per_clean_step,
    )


def _process(view: RankView) -> schema.Process | None:
    if view.process is None:
        return None
    return convert(view.process, schema.Process, from_attributes=True)


def _memory(memory: Memory | None) -> schema.TorchMemory | None:
    return None if memory is None else schema.TorchMemory(at=memory.at, **memory.bytes)
