"""``GET /events`` of a real daemon."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support import builders as b
from support.daemon import daemon, daemon_process
from support.records import wait_until
from support.training_standin import training
from support.web import TOKEN, ask
from warmwatch_monitor.server.api.changes import Recent, Wanted
from warmwatch_monitor.server.api.events import Events

Event = dict[str, Any]
_OF_THE_MACHINE = "source"  # one that is read for the first time may come between


class Listener:
    """An event client. Yields events with their ``id``, ``event`` and ``data``."""

    def __init__(self, url: str, query: str = "", **headers: str) -> None:
        where = urlsplit(url)
        self.connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
        self.connection.request("GET", f"/events{query}", headers=headers)
        self.reply = self.connection.getresponse()
        self.last = ""

    def __iter__(self) -> Iterator[Event]:
        event: Event = {}
        while line := self.reply.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name in ("event", "id"):
                event[name] = value
            elif name == "data":
                event["data"] = json.loads(value)
            elif not line.strip() and event:
                self.last = event.get("id", self.last)
                yield event
                event = {}

    def until(self, kind: str) -> Event:
        """The next one of a kind."""
        return next(event for event in self if event["event"] == kind)

    def close(self) -> None:
        self.connection.close()


@contextmanager
def listening(url: str, query: str = "", **headers: str) -> Iterator[Listener]:
    listener = Listener(url, query, **headers)
    try:
        yield listener
    finally:
        listener.close()


def test_a_client_gets_the_current_status_and_then_changes(tmp_path: Path) -> None:
    with training(tmp_path) as one, daemon(tmp_path) as url, listening(url) as listener:
        first = next(iter(listener))
        assert (first["event"], first["data"]["runs"][0]["state"]) == ("snapshot", "compiling")
        one.warm()
        reported = listener.until("warm")["data"]
        assert (reported["run"], reported["rank"], reported["steps"]) == ("gpt2", 0, 1)
        assert reported["summary"].startswith("gpt2: warm")
        one.compiles()
        assert listener.until("reopened")["data"]["run"] == "gpt2"
        assert listener.reply.headers["content-type"] == "text/event-stream"
        assert listener.reply.headers["cache-control"] == "no-store"


def test_a_client_that_reconnects_with_the_last_id_misses_no_event(tmp_path: Path) -> None:
    with training(tmp_path) as one, daemon(tmp_path) as url:
        with listening(url) as listener:
            last = next(iter(listener))["id"]
        one.warm()
        wait_until(lambda: state(url) == "warm")
        one.compiles()
        wait_until(lambda: state(url) == "recompiling")
        with listening(url, **{"Last-Event-ID": last}) as again:
            events = iter(again)
            kinds = []
            while "reopened" not in kinds:
                kinds.append(next(events)["event"])
        assert next(kind for kind in kinds if kind != _OF_THE_MACHINE) == "state"
        assert "warm" in kinds
        assert "snapshot" not in kinds


def test_an_id_of_an_earlier_daemon_gets_a_reset_with_the_whole_status(
    tmp_path: Path,
) -> None:
    with training(tmp_path):
        with daemon(tmp_path) as url, listening(url) as listener:
            last = next(iter(listener))["id"]
        with daemon(tmp_path) as url, listening(url, **{"Last-Event-ID": last}) as again:
            reset = next(iter(again))
    assert (reset["event"], reset["data"]["why"]) == ("reset", "another_daemon")
    assert reset["data"]["runs"][0]["state"] == "compiling"
    assert reset["id"].partition("-")[0] != last.partition("-")[0]


def test_an_event_stream_ends_with_the_daemon_without_delaying_it(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path)) as (process, url), listening(url) as listener:
        next(iter(listener))
        process.terminate()
        (last,) = [one for one in listener if one["event"] != "source"]
        assert (last["event"], last.get("id")) == ("stopping", None)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_client_whose_token_is_revoked_gets_no_more_events_and_no_wait_answer(
    tmp_path: Path,
) -> None:
    """The requests in progress end by themselves, without an event that they could send."""
    (tmp_path / "token").write_text(TOKEN)
    records = tmp_path / "records"
    options = ("--dir", str(records), "--token-file", str(tmp_path / "token"))
    known = {"Authorization": f"Bearer {TOKEN}"}
    with training(records), daemon_process(*options) as (_, url), ThreadPoolExecutor(1) as executor:
        wait_until(lambda: ask(url, "/-/ready").status == 200)  # so the run is no event
        assert ask(url, "/events").status == 401
        waiting = executor.submit(ask, url, "/status?wait=warm&timeout=3600", **known)
        with listening(url, "?kinds=run", **known) as listener:
            next(iter(listener))
            (tmp_path / "other").write_text("another-token-of-some-length")
            (tmp_path / "other").rename(tmp_path / "token")
            assert [event["event"] for event in listener] == []
        with pytest.raises(ConnectionError):
            waiting.result(timeout=60)


def test_above_the_limit_the_oldest_listener_has_to_reconnect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("warmwatch_monitor.server.api.events.MOST_LISTENERS", 2)
    events = Events(lambda: b.snapshot(), Recent())

    async def scenario() -> None:
        listeners = [events.listen(Wanted(), None) for _ in range(3)]
        for listener in listeners:
            await anext(listener)
        ended = [asyncio.ensure_future(anext(listener, None)) for listener in listeners]
        assert await asyncio.wait_for(ended[0], 60) is None
        await asyncio.sleep(0.1)
        assert [future.done() for future in ended] == [True, False, False]
        events.leave()
        for future in ended[1:]:
            assert b"event: stopping" in (await asyncio.wait_for(future, 60) or b"")

    asyncio.run(scenario())


def test_head_returns_only_the_headers(tmp_path: Path) -> None:
    with daemon(tmp_path) as url:
        reply = ask(url, "/events", method="HEAD")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")


@pytest.mark.parametrize("query", ["?samples=perhaps", "?kinds=everything", "?kinds=run,,gone"])
def test_an_invalid_parameter_is_refused(tmp_path: Path, query: str) -> None:
    with daemon(tmp_path) as url:
        assert ask(url, f"/events{query}").status == 422


def state(url: str) -> str:
    return str(json.loads(ask(url).body)["runs"][0]["state"])
