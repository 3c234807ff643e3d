"""``/events``: one task serves all listeners.

A listener has a position in the ring of recent events and nothing else, so a slow reader costs no
memory: it misses events that have left the ring, and its connection ends. Connections have a
limited length; a client that reconnects with the last id misses nothing.

The event ``sample`` has the figures of the present moment, and the sentences.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

from msgspec import convert
from msgspec.structs import replace

from warmwatch_monitor.base.errors import UnknownRunError
from warmwatch_monitor.model.snapshot import RankView, Snapshot, all_warm, any_compiling
from warmwatch_monitor.server.api.cached import SnapshotCache, json_body
from warmwatch_monitor.server.api.changes import ForgottenError, Recent, Wanted, framed
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.run import run_in_words
from warmwatch_monitor.status.schema.events import (
    ResetEvent,
    SampledGpu,
    SampledRank,
    SampleEvent,
    StoppingEvent,
)
from warmwatch_monitor.status.schema.status import Status
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.sentence import answer

MOST_LISTENERS = 1000
POLL_SECONDS = 0.05
BEAT_SECONDS = 15.0
LIFE_SECONDS = 3600.0
_AT_ONCE = 25
_RETRY = b"retry: 2000\n\n"
_BEAT = b": still here\n\n"


class Events:
    """The listeners. Used only on the event loop."""

    def __init__(self, latest: Callable[[], Snapshot], recent: Recent) -> None:
        self._latest, self._recent = latest, recent
        self._cache = SnapshotCache()
        # Each is set when there is news, or when the listener has to reconnect; the oldest first.
        self._listeners: dict[asyncio.Event, None] = {}
        self._waker: asyncio.Task[None] | None = None
        self._leaving = False
        self._beats, self._samplers = 0, 0
        self._sampled: tuple[int, bytes] = (0, b"")

    def leave(self) -> None:
        """End all connections."""
        self._leaving = True
        for news in self._listeners:
            news.set()

    async def listen(
        self, wanted: Wanted, last_id: str | None, *, samples: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """The bytes to send to one listener, until it must reconnect.

        Above the limit, the oldest listener makes room: it can reconnect and misses nothing.
        """
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        if len(self._listeners) >= MOST_LISTENERS:
            oldest = next(iter(self._listeners))
            del self._listeners[oldest]
            oldest.set()
        self._listeners[news] = None
        self._samplers += samples
        if self._waker is None or self._waker.done():
            self._waker = asyncio.create_task(self._wake_on_news())
        try:
            until = loop.time() + LIFE_SECONDS
            number, first = self._first(wanted, last_id)
            yield _RETRY + first
            beats, sampled = self._beats, 0
            while news in self._listeners and not self._leaving and loop.time() < until:
                news.clear()
                try:
                    number, datas = self._recent.after(number, wanted)
                except ForgottenError:
                    return
                if samples and self._sampled[0] > sampled:
                    sampled = self._sampled[0]
                    datas.append(self._sampled[1])
                if not datas and beats != self._beats:
                    datas.append(_BEAT)
                if datas:
                    beats = self._beats
                    yield b"".join(datas)
                else:
                    await news.wait()
            if self._leaving:
                stopping = json_body(StoppingEvent(at=time.time())).plain
                yield framed(StoppingEvent.kind, stopping)
        finally:
            self._samplers -= samples
            self._listeners.pop(news, None)

    def _first(self, wanted: Wanted, last_id: str | None) -> tuple[int, bytes]:
        """The begin of a connection: the whole status, unless it resumes an earlier one."""
        why = None
        if last_id:
            try:
                number = self._recent.number_of(last_id)
                self._recent.after(number, wanted)
            except ForgottenError as error:
                why = str(error)
            else:
                return number, b""
        number = self._recent.number  # before the status, so that no event is lost in between
        return number, self._present(wanted.run, why, self._recent.id_of(number))

    def _present(self, run: str | None, why: str | None, id: str) -> bytes:
        snapshot = self._latest()

        def make() -> bytes:
            answer = json_body(_answer(snapshot, run)).plain
            if why is None:
                return framed("snapshot", answer, id)
            reset = json_body(ResetEvent(why=why)).plain
            return framed("reset", b"%b,%b" % (reset[:-1], answer[1:]), id)

        made = self._cache.get(snapshot, (run, why, id), make)
        assert isinstance(made, bytes)
        return made

    async def _wake_on_news(self) -> None:
        """Wake listeners when there are new events, as long as there are any."""
        loop = asyncio.get_running_loop()
        sent, beat_at, sample_at = self._recent.number, loop.time() + BEAT_SECONDS, 0.0
        while self._listeners and not self._leaving:
            now, wake = loop.time(), False
            if self._recent.number != sent:
                sent, wake = self._recent.number, True
            if now >= beat_at:
                self._beats, beat_at, wake = self._beats + 1, now + BEAT_SECONDS, True
            if self._samplers and now >= sample_at:
                sample_at, wake = now + 1.0, True
                content = json_body(sample(self._latest())).plain
                self._sampled = (self._sampled[0] + 1, framed("sample", content))
            if wake:
                await self._wake()
            await asyncio.sleep(POLL_SECONDS)

    async def _wake(self) -> None:
        """Wake a few at a time, so that other requests get their turn."""
        for turn, news in enumerate(tuple(self._listeners)):
            news.set()
            if turn % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)


def _answer(snapshot: Snapshot, run: str | None) -> Status:
    """The whole status; a run that does not exist yet may appear."""
    try:
        return status(snapshot, run)
    except UnknownRunError:
        return status(replace(snapshot, runs=()))


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
