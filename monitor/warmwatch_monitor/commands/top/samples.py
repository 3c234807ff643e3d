"""Merges the daemon's samples into the last answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from warmwatch_monitor.output.summary import several_of

Answer = Mapping[str, Any]
_GPU = ("utilization_ratio", "power_watts", "memory_used_bytes")


class Update(NamedTuple):
    """The result of listening for a while.

    Attributes:
        is_live: the daemon sends events. changed: an event came, so the last answer is out of date.
        sample: the latest figures from ``/events``, or ``None``.
    """

    is_live: bool
    changed: bool
    sample: Answer | None


NOTHING = Update(is_live=False, changed=False, sample=None)


def with_sample(answer: Answer, sample: Answer) -> Answer:
    """``answer`` with the figures of ``sample``, if that is newer and not overdue itself.

    A rank whose state changed stays as it was: the event has already triggered a new request.
    """
    if sample["late_seconds"] is not None or sample["at"] <= (answer.get("at") or 0.0):
        return answer
    sampled = {value["run"]: value for value in sample["runs"]}
    ranks = {(rank["run"], rank["rank"]): rank for rank in sample["ranks"]}
    gpus = {value["uuid"]: {name: value[name] for name in _GPU} for value in sample["gpus"]}
    runs = [_run(run, sampled.get(run["run"]), ranks) for run in answer["runs"]]
    sentence, every = several_of(runs, answer), sampled.keys() == {run["run"] for run in runs}
    return {
        **answer,
        "at": sample["at"],
        "summary": sample["summary"] if every else sentence.summary,
        "details": sample["details"] if every else list(sentence.details),
        "runs": runs,
        "gpus": [{**gpu, **gpus.get(gpu["uuid"], {})} for gpu in answer["gpus"]],
    }


def _run(
    run: Answer, sampled_run: Answer | None, ranks: Mapping[tuple[str, int], Answer]
) -> Answer:
    if sampled_run is None:
        return run
    now = [_rank(rank, ranks.get((run["run"], rank["rank"]))) for rank in run["ranks"]]
    text = {name: sampled_run[name] for name in ("summary", "clauses", "state_words")}
    return {**run, **text, "ranks": now}


def _rank(rank: Answer, now: Answer | None) -> Answer:
    if now is None or now["state"] != rank["state"]:
        return rank
    compile = {
        "phase": now["phase"],
        "seconds": now["compile_seconds"],
        "progress": now["progress"],
    }
    steps = {"last_second": now["step_seconds"]}
    if now["a_step_seconds"] is not None:  # the sentence's figure, so that both agree
        steps["recent"] = now["a_step_seconds"]
    return {
        **rank,
        "steps": now["steps"],
        "clean_steps": now["clean_steps"],
        "evidence": now["evidence"],
        "step_seconds": {**rank["step_seconds"], **steps},
        "last_step_age_seconds": now["last_step_age_seconds"],
        "compile": {**rank["compile"], **compile},
    }
