"""The run summaries for a command: from the records, or from the history."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import ValidationError, convert
from msgspec.structs import replace

from warmwatch.shared.phrases import duration
from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.base.errors import (
    NoRunError,
    NotInHistoryError,
    NotOneRunError,
    StoreError,
    UnknownRunError,
    UsageError,
    WarmwatchError,
)
from warmwatch_monitor.base.settings import EVER_SECONDS, Settings, load_history_settings
from warmwatch_monitor.client.answers import from_daemon, settings_from
from warmwatch_monitor.client.choice import choose_runs
from warmwatch_monitor.client.history_writer import HistoryWriter
from warmwatch_monitor.client.records import make_poller
from warmwatch_monitor.history.earlier_runs import earlier
from warmwatch_monitor.history.earlier_runs_source import earlier_runs_source
from warmwatch_monitor.history.finding import find
from warmwatch_monitor.history.listing import RunQuery
from warmwatch_monitor.history.store import Store, merged
from warmwatch_monitor.history.summaries import id_of, summarize_run
from warmwatch_monitor.output.console import note, plain
from warmwatch_monitor.status.schema.rank import Rank

if TYPE_CHECKING:
    from warmwatch_monitor.model.run_summary import RunSummary
    from warmwatch_monitor.model.snapshot import RunView, Snapshot

_NONE = "No run found: there are no records, and the history is empty"


def run_summaries(
    names: Sequence[str] = (),
    *,
    dir: str | None = None,
    take: Callable[[Snapshot], None] | None = None,
) -> tuple[RunSummary, ...]:
    """One for each of ``names``, in their order; of none, that of the run that began last.

    A name refers to a run with a record, if there is one, else to the history; a pattern may
    match several. Runs that have ended are written to the history. ``dir``: the record directory;
    the history is then not read or written.
    ``take``: called with the Snapshot of the records.

    Raises:
        UnknownRunError, NotInHistoryError: no run has this name. NoRunError: there are no runs.
        StoreError: the history is needed and cannot be read. UsageError: ``dir`` cannot be used.
    """
    settings = settings_from(dir=dir, observe="off")
    ends = () if dir else earlier_runs_source(settings.history)
    snapshot = make_poller(replace(settings, retention=EVER_SECONDS), *ends).poll_once()
    if take is not None:
        take(snapshot)
    history = None
    if dir is None and settings.history.directory is not None:
        # first: NAME~1 and the last comparable run may have a record only
        ended = HistoryWriter(settings.history)
        ended.take(snapshot)
        ended.write()
        history = Store(settings.history)
    if names:
        answers = [run for name in names for run in _named(snapshot, name, history)]
    else:
        answers = [_latest(snapshot, history)]
    if dir is None and any(answer.state not in ENDED_STATES for answer in answers):
        answers = _with_daemon_answers(answers, settings)
    return tuple(answers)


def run_summary(name: str | None, **options: Any) -> RunSummary:
    """The summary of one run, as ``run_summaries``. Raises UsageError if several match."""
    summaries = run_summaries(() if name is None else (name,), **options)
    if len(summaries) > 1:
        names = ", ".join(summary.run for summary in summaries)
        raise UsageError(f"{name!r} matches several runs: {names}; give one of them")
    return summaries[0]


def ended_run(name: str, dir: str | None) -> RunSummary | None:
    """The run of this name that ended, however long ago; ``None`` if none is known."""
    with suppress(WarmwatchError):
        run = run_summary(name, dir=dir)
        if run.state in ENDED_STATES:
            return run
    return None


def is_in_history(name: str) -> bool:
    settings = load_history_settings(os.environ)
    if settings.directory is not None:
        with suppress(WarmwatchError):
            find(Store(settings), name)
            return True
    return False


def ended_words(run: RunSummary, now: float) -> str:
    """How the run ended, when, and what shows more."""
    verb, at = ("ended", run.ended) if run.ended is not None else ("was last seen", run.seen)
    ago = duration(max(0.0, now - at))
    return f"{run.summary}; it {verb} {ago} ago: warmwatch report {quote(run.run)} shows all of it"


def _with_daemon_answers(summaries: Sequence[RunSummary], settings: Settings) -> list[RunSummary]:
    """Living runs with the answers of a daemon, which has seen more than one poll.

    So the report has the sentence of ``warmwatch status``. Without a daemon they stay as they are.
    """
    try:
        answered = from_daemon(settings)
    except WarmwatchError:
        answered = None
    answer = answered[0] if answered else {"runs": ()}
    runs = {(run["run"], run["owner"], run["state"]): run for run in answer["runs"]}
    pairs = [
        (summary, runs.get((summary.run, summary.owner, summary.state))) for summary in summaries
    ]
    newer = [summary if run is None else _with_answer(summary, run) for summary, run in pairs]
    if settings.history.directory is None:
        return newer
    # the history has what an earlier daemon measured
    return [merged(summary, new) for summary, new in zip(summaries, newer, strict=True)]


def _with_answer(summary: RunSummary, run: Mapping[str, Any]) -> RunSummary:
    """``summary`` with the answers of ``run``; as it is if that is another start of the run."""
    answers = {(rank["rank"], rank["attached_at"]): rank for rank in run["ranks"]}
    ranks = []
    for item in summary.ranks:
        answer = answers.get((item.rank, item.answer.get("attached_at")))
        if answer is None:
            return summary
        ranks.append(replace(item, answer=answer))
    return replace(summary, summary=run["summary"], ranks=tuple(ranks))


def last_like(summary: RunSummary) -> RunSummary | None:
    """The last comparable run in the history; ``None`` if there is none or it cannot be read."""
    settings = load_history_settings(os.environ)
    if settings.directory is None:
        return None
    try:
        return next(iter(earlier(Store(settings), summary)), None)
    except StoreError as error:
        note(f"warmwatch: not compared with earlier runs: {plain(str(error))}")
        return None


@contextmanager
def as_written(runs: Iterable[RunSummary]) -> Iterator[None]:
    """Turn an error caused by a damaged summary in ``runs`` into a StoreError that names it.

    Validates only after an error: what no caller needs may be missing.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        for summary in runs:
            if problem := _problem(summary):
                raise StoreError(
                    f"run {summary.run!r} ({summary.id}) is damaged, or of another warmwatch: "
                    f"{problem}; remove it from the history"
                ) from None
        raise


def _problem(summary: RunSummary) -> str | None:
    """The first deviation of its ranks' answers from the schema of ``/status``."""
    for rank in summary.ranks:
        try:
            convert(rank.answer, Rank)
        except ValidationError as error:
            return f"rank {rank.rank}, {error}"
    return None


def summaries_in(snapshot: Snapshot) -> tuple[RunSummary, ...]:
    return tuple(summarize_run(run, snapshot) for run in snapshot.runs)


def _seen(run: RunView, snapshot: Snapshot, history: Store | None) -> RunSummary:
    """The summary, extended by what a daemon wrote to the history: samples and measurements."""
    seen = summarize_run(run, snapshot)
    if history is None:
        return seen
    try:
        before = history.load(seen.id)
    except StoreError as error:
        _without_history(error)
        return seen
    return seen if before is None else merged(before, seen)


def _without_history(error: StoreError) -> None:
    note(f"warmwatch: without the history: {plain(str(error))}")


def _latest(snapshot: Snapshot, history: Store | None) -> RunSummary:
    """The run that began last. Usually its record exists, and the history is not needed."""
    runs = [view for view in snapshot.runs if view.attached_at is not None]
    latest = max(runs, key=lambda run_view: run_view.attached_at or 0.0, default=None)
    try:
        newest = history.listed(RunQuery(limit=1)) if history is not None else []
    except StoreError as error:
        if latest is None:
            raise
        _without_history(error)
        return _seen(latest, snapshot, None)
    if latest is not None and (not newest or (latest.attached_at or 0.0) >= newest[0].began):
        return _seen(latest, snapshot, history)
    run = history.load(newest[0].id) if history is not None and newest else None
    if run is None:
        raise NoRunError(_NONE)
    return run


def _named(snapshot: Snapshot, name: str, history: Store | None) -> list[RunSummary]:
    try:
        views = _views(snapshot, name)
    except UnknownRunError as unknown:
        if history is None:
            raise
        return [_from_history(history, _without_live_start(snapshot, name, history), unknown)]
    return [_seen(view, snapshot, history) for view in views]


def _views(snapshot: Snapshot, name: str) -> list[RunView]:
    """The existing runs with this name or id. Raises UnknownRunError."""
    shown = [
        {
            "run": view.run,
            "name": view.who.name or view.run,
            "owner": view.who.owner,
            "owner_uid": view.who.owner_uid,
        }
        for view in snapshot.runs
    ]
    if runs := [view for view in snapshot.runs if id_of(view) == name]:
        return runs
    chosen = {run["run"] for run in choose_runs(shown, name, os.geteuid())}
    return [view for view in snapshot.runs if view.run in chosen]


def _without_live_start(snapshot: Snapshot, name: str, history: Store) -> str:
    """``NAME~2``, counted by the history, which may lack the start that still exists."""
    plain_name, _, back = name.rpartition("~")
    if not plain_name or not back.isdecimal() or len(back) > 9 or not int(back):
        return name
    try:
        views = _views(snapshot, plain_name)
    except UnknownRunError:
        return name
    value = len(views) != 1 or history.listed(RunQuery(id=id_of(views[0]), limit=1))
    return name if value else f"{plain_name}~{int(back) - 1}"


def _from_history(history: Store, name: str, unknown: UnknownRunError) -> RunSummary:
    try:
        return find(history, name)
    except NotOneRunError:
        raise
    except NotInHistoryError:
        if not unknown.known:
            raise
        raise NotInHistoryError(
            f"{unknown}; the history has none either, see `warmwatch runs`"
        ) from None
