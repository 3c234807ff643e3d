"""The event ``sample``: the figures of the present moment, and the sentences."""

from __future__ import annotations

from msgspec import convert

from warmwatch_monitor.model import RankView, Snapshot, all_warm, any_compiling
from warmwatch_monitor.status.run import run_in_words
from warmwatch_monitor.status.schema.events import SampledGpu, SampledRank, SampleEvent
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.sentence import answer


def sample(snapshot: Snapshot) -> SampleEvent:
    """The present figures, and the sentences."""
    sentence = answer(snapshot)
    return SampleEvent(
        at=snapshot.epoch,
        late_seconds=snapshot.late_seconds,
        summary=sentence.summary,
        details=list(sentence.details),
        compiling=any_compiling(snapshot.runs),
        warm=all_warm(snapshot.runs),
        awaited=snapshot.awaited,
        runs=[run_in_words(view) for view in snapshot.runs],
        ranks=[_present(view) for run in snapshot.runs for view in run.ranks],
        gpus=[convert(gpu, SampledGpu, from_attributes=True) for gpu in snapshot.gpus],
    )


def _present(view: RankView) -> SampledRank:
    figures, judgement = view.figures, view.judgement
    return SampledRank(
        run=view.run,
        rank=view.rank,
        state=judgement.state,
        phase=(judgement.phase or "other") if judgement.compiling else None,
        pause=_pause(view),
        steps=figures.steps.count,
        clean_steps=judgement.clean_steps,
        evidence=evidence(view),
        step_seconds=figures.steps.last_second,
        a_step_seconds=figures.steps.length,
        last_step_age_seconds=figures.progress.last_step_age_seconds,
        compile_seconds=figures.compile.seconds,
        progress=figures.compile.open.counted if figures.compile.open else None,
    )


def _pause(view: RankView) -> str | None:
    pauses = view.figures.pauses
    if pauses.saving_since is not None:
        return "saving"
    return None if pauses.evaluating_since is None else "evaluation"
