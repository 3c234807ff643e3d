"""The HTTP interface, through the real application."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from typing import Any

import httpx
import pytest

from support import builders as b
from support.values import replace
from warmwatch_monitor import metrics
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.model.snapshot import RankView, Snapshot
from warmwatch_monitor.server.api import answers
from warmwatch_monitor.server.api.answers import GoneError, Waiters, Wanted
from warmwatch_monitor.server.api.app import Api
from warmwatch_monitor.server.api.cached import SnapshotCache
from warmwatch_monitor.server.api.openapi import page

STATES = b.in_every_state()


class Feed:
    """The latest snapshot, as a poller would publish it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.polled = asyncio.Event()

    def latest(self) -> Snapshot:
        self.polled.set()
        return self.snapshot


def client(feed: Feed) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=Api(feed.latest, "0.1.0"))
    return httpx.AsyncClient(transport=transport, base_url="http://monitor")


def get(path: str, *snapshots: Snapshot, **headers: str) -> httpx.Response:
    """The answer to one request over a snapshot, by default of one warm run."""

    async def ask() -> httpx.Response:
        feed = Feed(*snapshots or (b.snapshot(STATES["warm"]),))
        async with client(feed) as http:
            return await asyncio.wait_for(http.get(path, headers=headers), 120)

    return asyncio.run(ask())


def test_status_returns_the_whole_document() -> None:
    answer = get("/status")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert (answer.json()["warm"], answer.json()["runs"][0]["run"]) == (True, "gpt2")


def test_a_slow_answer_is_reused_for_later_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For ten times as long as it took, so that one client cannot delay the others."""
    cpu, now = [0.0], [100.0]
    monkeypatch.setattr("warmwatch_monitor.server.api.cached.time.thread_time", lambda: cpu[0])
    monkeypatch.setattr("warmwatch_monitor.server.api.cached.time.monotonic", lambda: now[0])
    cache, made = SnapshotCache(), iter(range(100))

    def answer(seconds: float) -> int:
        def make() -> int:
            cpu[0] += seconds
            return next(made)

        return int(cache.get_costly(b.snapshot(), "metrics", make))

    assert [answer(0.01), answer(0.01)] == [0, 1]
    assert [answer(0.1), answer(0.1)] == [2, 2]
    now[0] += 0.9
    assert answer(0.1) == 2
    now[0] += 0.2
    assert [answer(5.0), answer(5.0)] == [3, 3]
    now[0] += 2.1
    assert answer(0.01) == 4


@pytest.mark.parametrize("path", ["/status?run={}", "/status?wait=warm&run={}", "/events?run={}"])
def test_an_impossible_run_name_is_refused(path: str) -> None:
    """10,000 clients that wait with 64 KB each would take 640 MB."""
    assert get(path.format("x" * 513)).status_code == 422


@pytest.mark.parametrize("query", ["run=bert", "run=bert&wait=warm&timeout=0.01", "run=b&run=bert"])
def test_a_run_is_not_found_only_after_all_records_were_read(query: str) -> None:
    unread = get(f"/status?{query}", b.snapshot(STATES["warm"], unread=3))
    assert (unread.status_code, unread.headers["retry-after"]) == (503, "1")
    assert unread.json()["detail"] == (
        "not all records have been read yet (3 are left); no run named 'bert' was found yet; "
        "runs so far: gpt2"
    )
    assert get("/status", b.snapshot(STATES["warm"], unread=3)).json()["unread_records"] == 3


def test_a_run_name_with_invalid_utf_8_is_shown() -> None:
    odd = replace(b.WARM, identity=replace(b.WARM.identity, run="caf\udce9"))
    assert json.loads(get("/status", b.snapshot(b.view(odd))).content)["warm"] is True


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("wait=hot", "matching regex '^(starting|compiling|warming|warm|"),
        ("wait=", "`$.wait`"),
        ("wait=warm%0A", "`$.wait`"),
        ("wait=warm&timeout=0", "Expected `float` > 0.0 - at `$.timeout`"),
        ("wait=warm&timeout=3601", "Expected `float` <= 3600.0 - at `$.timeout`"),
        ("wait=warm&timeout=soon", "`$.timeout`"),
        ("wait=warm&timeout=", "`$.timeout`"),
        ("wait=warm&timeout=nan", "`$.timeout`"),
        ("wait=warm&timeout=inf", "`$.timeout`"),
        ("&".join(["run=gpt2"] * 17), "Max number of fields exceeded"),
    ],
)
def test_an_invalid_parameter_is_refused_with_a_message(query: str, sentence: str) -> None:
    refused = get(f"/status?{query}")
    assert refused.status_code == 422
    assert sentence in refused.json()["detail"]


COLD = b.view(b.ended("finished", b.COMPILING), alive=False)


@pytest.mark.parametrize("query", ["", "run=gpt2&"])
@pytest.mark.parametrize(
    ("state", "goal", "reached"),
    [
        ("finished", "warm", True),  # it was warm earlier, perhaps between two polls
        ("cold", "warm", False),
        ("failed", "warm", False),
        ("lost", "compiling", False),
        ("failed", "finished", False),
        ("failed", "failed", True),
        ("failed", "ended", True),
    ],
)
def test_a_wait_ends_if_no_change_is_possible_and_reports_whether_the_state_was_reached(
    state: str, goal: str, reached: bool, query: str
) -> None:
    """The run ends while one waits."""
    over = b.snapshot({**STATES, "cold": COLD}[state])

    async def scenario() -> None:
        feed = Feed(b.snapshot(STATES["stalled"]))
        async with client(feed) as http:
            waiting = asyncio.create_task(http.get(f"/status?{query}wait={goal}&timeout=3600"))
            await feed.polled.wait()
            await asyncio.sleep(0)
            feed.snapshot = over
            answer = await asyncio.wait_for(waiting, 60)
        assert (answer.status_code, answer.json()["reached"]) == (200, reached)

    asyncio.run(scenario())


EXITING = STATES["warm"].judgement._replace(conditions=("exiting",))


@pytest.mark.parametrize("query", ["", "run=gpt2&"])
@pytest.mark.parametrize(
    ("before", "state"),
    [(STATES["finished"], "finished"), (replace(STATES["warm"], judgement=EXITING), "warm")],
    ids=["finished", "exiting"],
)
def test_an_earlier_end_does_not_answer_a_wait_for_a_launch(
    query: str, before: RankView, state: str
) -> None:
    """Here a run that finished warm; the next start of it is waited for until it is."""

    async def scenario() -> None:
        feed = Feed(b.snapshot(before))
        async with client(feed) as http:
            in_vain = await http.get(f"/status?{query}wait=warm&timeout=0.05")
            assert in_vain.json()["reached"] is False
            assert in_vain.json()["runs"][0]["state"] == state
            feed.polled.clear()
            waiting = asyncio.create_task(http.get(f"/status?{query}wait=warm&timeout=3600"))
            await feed.polled.wait()
            feed.snapshot = b.snapshot(STATES["warm"])
            assert (await asyncio.wait_for(waiting, 60)).json()["reached"] is True

    asyncio.run(scenario())


def test_a_launch_that_failed_just_before_the_wait_answers_it() -> None:
    launched = replace(b.COMPILING, header=b.slot(attached=5).header)
    cold = b.view(b.ended("failed", launched, 2), alive=False)
    answer = get("/status?wait=warm&timeout=3600", b.snapshot(cold))
    assert answer.json()["reached"] is False


def test_a_wait_answers_when_the_state_is_reached_and_blocks_no_other_request() -> None:
    async def scenario() -> None:
        feed = Feed(b.snapshot(STATES["compiling"]))
        async with client(feed) as http:
            waiting = asyncio.create_task(http.get("/status?wait=warm&timeout=3600"))
            await feed.polled.wait()
            assert (await http.get("/status")).json()["compiling"] is True
            assert not waiting.done()
            feed.snapshot = b.snapshot(STATES["warm"])
            answer = await asyncio.wait_for(waiting, 60)
        assert answer.json()["warm"] is True

    asyncio.run(scenario())


def test_a_daemon_is_always_healthy_and_ready_after_the_first_read() -> None:
    host = SourceHealth(source="host", up=True, last_success=b.EPOCH)
    unread = b.snapshot(sources=(SourceHealth(source="records", up=False), host))
    assert get("/-/healthy", unread).status_code == 200
    assert get("/-/ready", unread).status_code == 503
    assert get("/-/ready").status_code == 200


def test_a_failed_source_leaves_it_ready() -> None:
    sources = (b.HEALTH, SourceHealth(source="host", up=False, error="gone"))
    assert get("/-/ready", b.snapshot(sources=sources)).status_code == 200


def test_records_that_became_unreadable_make_it_unready() -> None:
    lost = SourceHealth(source="records", up=False, last_success=b.EPOCH, error="/run/w has gone")
    answer = get("/-/ready", b.snapshot(sources=(lost,)))
    assert (answer.status_code, "/run/w" in answer.text) == (503, False)
    assert "the records cannot be read now" in answer.text
    assert get("/-/healthy", b.snapshot(sources=(lost,))).status_code == 200


def test_the_landing_page_links_the_endpoints() -> None:
    page = get("/")
    assert page.headers["content-type"].startswith("text/html")
    for path in ("status", "metrics", "docs"):
        assert f'href="{path}"' in page.text
        assert get(f"/{path}").status_code == 200


def test_the_api_page_needs_no_other_host_and_no_script() -> None:
    page = get("/docs").text
    assert not re.search(r"https?:|//|<script|@import|url\(", page)
    assert "<h2><code>GET /status</code></h2>" in page
    for words in ("<code>timeout</code>", "<code>recompiling</code>", "No run of that name"):
        assert words in page
    assert "<code>runs[].ranks[].compile.phase_seconds</code>" in page


def test_the_api_page_shows_the_description_of_each_field() -> None:
    described = {"type": "integer", "description": "Of the `run`."}
    inner = {"properties": {"rank": described, "self": {"$ref": "#/components/schemas/Inner"}}}
    items = {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}
    schema = {"properties": {"ranks": items, "odd<": {"anyOf": [{"description": "Or that."}]}}}
    answer = {"description": "It.", "content": {"application/json": {"schema": schema}}}
    operation = {"description": "Get it.", "parameters": [], "responses": {"200": answer}}
    document = {
        "info": {"title": "T", "summary": "S", "version": "1"},
        "paths": {"/x": {"get": operation}},
        "components": {"schemas": {"Inner": inner}},
    }
    shown = page(document)
    assert "<td><code>ranks[].rank</code></td><td>Of the <code>run</code>.</td>" in shown
    assert "<td><code>odd&lt;</code></td><td>Or that.</td>" in shown


def test_answers_of_one_snapshot_are_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    for name, make in (("status", answers.status), ("render", metrics.render)):

        def counting(*given: Any, name: str = name, make: Any = make, **more: Any) -> Any:
            made.append(name)
            return make(*given, **more)

        monkeypatch.setattr(metrics if name == "render" else answers, name, counting)

    async def scenario() -> None:
        feed = Feed(b.snapshot(STATES["warm"]))
        async with client(feed) as http:
            for _ in range(3):
                for path in ("/status", "/status?run=gpt2", "/metrics"):
                    await http.get(path)
            assert sorted(made) == ["render", "status", "status"]
            requested = {"accept": "application/openmetrics-text; version=1.0.0"}
            assert (await http.get("/metrics", headers=requested)).text.endswith("# EOF\n")
            feed.snapshot = b.snapshot(STATES["compiling"])
            assert (await http.get("/status")).json()["compiling"] is True
            assert len(made) == 5

    asyncio.run(scenario())


@pytest.fixture
def idle_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU time of this process does not grow from one answer to the next."""
    monkeypatch.setattr(
        "prometheus_client.process_collector.ProcessCollector.collect", lambda _: []
    )


@pytest.mark.parametrize(
    ("accept", "packed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("identity", False), ("gzip;q=0, br", False)],
)
@pytest.mark.usefixtures("idle_process")
def test_an_answer_is_compressed_if_the_client_accepts_it(accept: str, packed: bool) -> None:
    answer = get("/metrics", **{"accept-encoding": accept})
    assert answer.headers.get("content-encoding") == ("gzip" if packed else None)
    assert int(answer.headers["content-length"]) < len(answer.content) or not packed
    assert answer.text == get("/metrics", **{"accept-encoding": "identity"}).text
    small = get("/-/healthy", **{"accept-encoding": accept})
    assert "content-encoding" not in small.headers


async def stays() -> None:
    """A client that does not go away."""
    await asyncio.Event().wait()


def test_other_requests_are_served_while_waits_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here for ten runs; never two in one turn of the loop."""
    turn, made = [0], list[int]()
    status = answers.status

    def counting(snapshot: Snapshot, run: str | None) -> dict[str, Any]:
        made.append(turn[0])
        return status(snapshot, run)

    async def others() -> None:
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    def named(slot: Any, count: int = 10) -> Snapshot:
        identities = [replace(slot.identity, run=f"run{number}") for number in range(count)]
        return b.snapshot(*(b.view(replace(slot, identity=one)) for one in identities))

    async def scenario() -> None:
        feed = Feed(named(b.COMPILING))
        retained = answers.Answers(feed.latest, "0.1.0")
        waits = [
            asyncio.create_task(retained.wait("warm", f"run{number}", 3600, stays))
            for number in range(10)
        ]
        await asyncio.sleep(0)
        monkeypatch.setattr(answers, "status", counting)
        other = asyncio.create_task(others())
        feed.snapshot = named(b.WARM)
        await asyncio.wait_for(asyncio.gather(*waits), 60)
        other.cancel()
        assert len(set(made)) == len(made) == 10

    asyncio.run(scenario())


def test_a_client_that_leaves_while_others_are_answered_leaks_nothing() -> None:
    """An exception that is never retrieved would be a traceback in the log."""
    complaints: list[str] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, what: complaints.append(what["message"])
        )
        gone, broken = asyncio.Event(), asyncio.Event()

        async def leaving() -> None:
            await gone.wait()

        def judge(_snapshot: Snapshot, _wanted: Wanted) -> None:
            if broken.is_set():
                gone.set()  # in the turn in which the others are answered
                raise KeyError("here")

        snapshot = [b.snapshot()]
        waiters = Waiters(lambda: snapshot[0], judge)
        wanted = Wanted("warm", None, 1.0, 1)
        waits = [asyncio.create_task(waiters.wait(wanted, 60, leaving)) for _ in range(100)]
        await asyncio.sleep(0)
        broken.set()
        snapshot[0] = b.snapshot()
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(one) for one in answers} <= {GoneError, KeyError}
        assert GoneError in {type(one) for one in answers}

    asyncio.run(scenario())
    gc.collect()
    assert complaints == []


def test_a_wait_ends_with_503_when_the_daemon_stops() -> None:
    async def scenario() -> None:
        feed = Feed(b.snapshot(STATES["compiling"]))
        app = Api(feed.latest, "0.1.0")
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://monitor") as http:
            path = "/status?wait=warm&timeout=3600"
            waiting = asyncio.create_task(http.get(path))
            await feed.polled.wait()
            await asyncio.sleep(0)
            app.leave()
            for reply in (await asyncio.wait_for(waiting, 60), await http.get(path)):
                assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
                assert reply.json()["detail"] == "the daemon is stopping; send the request again"
            over = await http.get("/status?wait=compiling&timeout=3600")
            assert (over.status_code, over.json()["reached"]) == (200, True)

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["//status", "/nowhere", "/status/"])
def test_an_unknown_path_is_answered_with_the_known_ones(path: str) -> None:
    answer = get(f"http://monitor{path}")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("no such path; the paths are /, /status, /metrics")
