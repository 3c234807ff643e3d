"""A host that does not answer: what is said of its runs, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from support.promtool import World, about

pytestmark = pytest.mark.slow

ABORTED = {"end": "failed", "signal": "SIGABRT"}
RAISED = {"end": "failed", "exception": "RuntimeError", "exit_code": "1"}
DEAD = 300  # seconds: the first scrape that fails


def test_a_host_that_dies_with_its_ranks_is_one_page_that_names_it() -> None:
    """The others fail of it within a second, or abort after a hang."""
    world = World(30)
    gone, other = world.daemon("gone", down=lambda at: at >= DEAD), world.daemon("other")
    for run, ends in (("raised", 291), ("aborted", 1200)):
        attached = 280.0 if run == "raised" else 5.0  # it died young
        gone.rank(run, world_size=2, attached=attached)
        hangs = [(400.0, "stalled")] if run == "aborted" else []
        end = RAISED if run == "raised" else ABORTED
        states = [(0.0, "warm"), *hangs, (ends, "failed")]
        other.rank(run, 1, states, end=end, world_size=2, attached=attached)
    fired: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        fired.setdefault(name, {})[labels.get("run", "")] = times
    assert fired == {
        "WarmwatchHostLost": {"raised": [about(5.6, 30)], "aborted": [about(7.75, 30)]},
        "WarmwatchDaemonDown": {"": [about(7, 30)]},
    }
    ((_, text),) = [
        alert
        for alert in world.notified(["WarmwatchHostLost"], 10)["WarmwatchHostLost"]
        if alert[0]["run"] == "raised"
    ]
    assert text["summary"] == "raised stands still: a host with 1 of its ranks does not answer"
    assert "Prometheus has not reached node-gone for 30 seconds" in text["description"]
    assert "The host is down or cut off, and its ranks with it, or only" in text["description"]
    assert text["first_rank"] == (
        "rank 1 on node-other: failed, RuntimeError, exit code 1 (all ranks: 1 failed); "
        "1 more, when last seen, on node-gone, which shows none now"
    )
    assert text["command"] == "ping -c 3 node-gone"
    down = world.texts("WarmwatchDaemonDown", 10)["description"]
    assert "it had ranks of aborted (1), raised (1)." in down


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (1, "Another target on it answers Prometheus: the host is up, and its daemon does not"),
        (0, "No other target on it answers Prometheus: the host is down or cut off"),
    ],
)
def test_a_host_that_dies_while_the_others_wait_is_a_page_before_they_stall(
    other: int, words: str
) -> None:
    """And what else answers there tells a dead host from a dead daemon."""
    world = World(15)
    gone = world.daemon("gone:10464", down=lambda at: at >= DEAD)
    exporter = {"instance": "gone:9100", "job": "node"}
    world.add("up", lambda at: float(at < DEAD or other), **exporter)
    world.daemon("other:10464").rank(
        rank=1,
        states=[(0, "warm"), (360, "stalled")],
        conditions={"silent": (315, 9999)},
        quiet_since=DEAD,
        world_size=2,
    )
    gone.rank(world_size=2)
    assert world.alerts == {
        "WarmwatchHostLost": [about(5.6, 15)],
        "WarmwatchDaemonDown": [about(7, 15)],
    }
    for at in (6, 14):
        assert words in world.texts("WarmwatchHostLost", at)["description"]
    assert world.texts("WarmwatchHostLost", 6)["first_rank"].endswith(
        "; 1 of them on node-gone:10464, which does not answer"
    )


def test_a_daemon_that_falls_silent_after_a_page_of_its_run_is_no_second_page() -> None:
    """Though the ranks of the others make no step since: they wait for the one that was lost."""
    world = World(12)
    silent = world.daemon("silent", down=lambda at: 375 <= at < 450)
    waits: dict[str, Any] = {"quiet_since": 300.0, "conditions": {"silent": (310, 9999)}}
    silent.rank(states=[(0, "warm"), (300, "lost")], end={"end": "lost"}, world_size=3)
    silent.rank(rank=1, world_size=3, **waits)
    world.daemon("other").rank(rank=2, world_size=3, **waits)
    assert world.alerts == {"WarmwatchRankLost": [about(5.75, 12)]}


def test_a_daemon_that_is_down_for_minutes_after_a_hang_paged_and_others_failed_of_it() -> None:
    world = World(20)
    hangs = [(0.0, "warm"), (300.0, "stalled")]
    silent = world.daemon("silent", down=lambda at: 660 <= at < 900)
    silent.rank(states=hangs, world_size=2, timeout=300)
    other = world.daemon("other")
    other.rank(rank=1, states=[*hangs, (540, "failed")], end=RAISED, world_size=2, timeout=300)
    alerts = world.alerts
    assert alerts.pop("WarmwatchDaemonDown") == [about(13, 14.75)]
    assert alerts == {
        "WarmwatchStalled": [about(6, 9)],
        "WarmwatchStalledLong": [about(6.75, 20)],
    }


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_host_that_answers_again_without_its_rank_is_no_second_page(rebooted: bool) -> None:
    """Its daemon shows that the rank is lost, or has no record of it after a reboot."""
    world = World(20)
    gone = world.daemon("gone", down=lambda at: DEAD <= at < 480)
    states = [(0.0, "warm"), (480.0, "lost")]
    removed = 480 if rebooted else 9999
    gone.rank(states=states, end={"end": "lost"}, ended_at=295, world_size=2, removed=removed)
    world.daemon("other").rank(
        rank=1,
        states=[(0, "warm"), (360, "stalled"), (900, "failed")],
        end=RAISED,
        conditions={"silent": (315, 900)},
        quiet_since=DEAD,
        world_size=2,
        timeout=600,
    )
    alerts = world.alerts
    assert alerts.pop("WarmwatchHostLost") == [about(5.6, 15)]
    assert alerts.pop("WarmwatchDaemonDown") == [about(7, 7.75)]
    assert alerts.keys() == {"WarmwatchRunFailed"}, alerts  # when none is left that waits
    text = world.texts("WarmwatchHostLost", 12)
    assert text["description"].startswith("It answers again without these ranks")
    lost = "other" if rebooted else "gone"
    assert text["command"] == f"on node-{lost}: warmwatch status 'gpt2'"


@pytest.mark.long
def test_a_host_that_is_scraped_every_minute_is_found_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("support.promtool.STEP", 60)
    world = World(15)
    world.daemon("gone", down=lambda at: at >= DEAD).rank(world_size=2)
    states = [(0.0, "warm"), (420.0, "stalled")]
    world.daemon("other").rank(rank=1, states=states, world_size=2)
    assert world.alerts == {
        "WarmwatchHostLost": [about(9, 15)],
        "WarmwatchDaemonDown": [about(7, 15)],
    }


@pytest.mark.long
def test_a_daemon_that_restarts_while_a_run_pauses_is_no_lost_host() -> None:
    """A pause of less than 20 s, or a host that is back within 30 s."""
    world = World(15)
    for name, down in (("short", (300, 315)), ("long", (600, 660))):
        world.daemon(name, down=lambda at, d=down: d[0] <= at <= d[1]).rank(name, world_size=2)
    other = world.daemon("other")
    other.rank("short", 1, conditions={"silent": (270, 360)}, quiet_since=260, world_size=2)
    other.rank("long", 1, conditions={"silent": (650, 665)}, quiet_since=645, world_size=2)
    assert world.alerts == {}


@pytest.mark.long
def test_a_daemon_that_is_down_is_the_cause_of_nothing() -> None:
    """The training steps on; a rank that fails later, or failed before, does so by itself."""
    world = World(30)
    down = world.daemon("down", down=lambda at: DEAD <= at < 1500)
    other = world.daemon("other")
    for run in ("steps", "raises", "raised-before"):
        down.rank(run, world_size=2)
    other.rank("steps", 1, world_size=2)
    other.rank("raises", 1, [(0, "warm"), (900, "failed")], end=RAISED, world_size=2)
    other.rank("raised-before", 1, [(0, "warm"), (180, "failed")], end=RAISED, world_size=2)
    fired: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        fired.setdefault(name, {})[labels.get("run", "")] = times
    assert fired == {
        "WarmwatchDaemonDown": {"": [about(7, 24.75)]},
        # rank 0 of it lives, as is seen when its daemon answers again
        "WarmwatchRunFailed": {"raises": [about(15.6, 25)]},
        "WarmwatchRankLost": {"raises": [about(25, 30)], "raised-before": [about(3.75, 30)]},
    }
    text = world.texts("WarmwatchRunFailed", 20)
    assert text["first_rank"].endswith(
        "; 1 more, when last seen, on node-down, which shows none now"
    )
    assert text["description"].startswith("No rank is seen to live; the last ended")


@pytest.mark.long
def test_a_host_whose_last_answer_had_its_ranks_ended_pages_no_living_ones() -> None:
    """A shutdown ends the ranks one after another, and the daemon last."""
    world = World(20)
    gone = world.daemon("gone", down=lambda at: at >= DEAD)
    killed = [(0.0, "warm"), (285.0, "lost")]
    end = {"end": "lost", "signal": "SIGKILL"}
    gone.rank("alone", 0, killed, end=end, world_size=2)
    gone.rank("alone", 1, world_size=2)
    world.daemon("other").rank("elsewhere", 1, world_size=2)
    gone.rank("elsewhere", 0, killed, end=end, world_size=2)
    fired: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        fired.setdefault(name, {})[labels.get("run", "")] = times
    assert fired == {
        "WarmwatchDaemonDown": {"": [about(7, 20)]},
        # its other rank lives on a host that answers, and waits
        "WarmwatchRankLost": {"elsewhere": [about(5.75, 20)]},
    }
    assert world.texts("WarmwatchRankLost", 15)["first_rank"].startswith(
        "rank 0 on node-gone: lost"
    )


@pytest.mark.long
def test_a_host_that_was_replaced_is_not_named_any_more() -> None:
    """Its ranks were started again on another one, where one stalls later."""
    world = World(30)
    world.daemon("gone", down=lambda at: at >= DEAD).rank(world_size=2)
    other = world.daemon("other")
    other.rank(rank=1, states=[(0, "warm"), (291, "failed")], end=RAISED, world_size=2)
    new = world.daemon("new")
    for rank in (0, 1):
        states = [(600.0, "starting"), (660.0, "warm"), (1200.0, "stalled")]
        new.rank(rank=rank, states=states, attached=600, world_size=2)
    assert world.alerts["WarmwatchHostLost"] == [about(5.6, 10)]
    assert world.alerts.keys() == {
        "WarmwatchHostLost",
        "WarmwatchDaemonDown",
        "WarmwatchRunFailed",  # until a rank of it makes a step
        "WarmwatchStalled",
    }


AGAIN = [(500.0, "starting")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("later", "failed", "ended"),
    [
        pytest.param([], (5.6, 40), None, id="hangs", marks=pytest.mark.long),
        pytest.param(
            [(1500.0, "compiling"), (1800.0, "warm")], (5.6, 30), None, id="steps after all"
        ),
        pytest.param([(1500.0, "lost")], (5.6, 25), (26.25, 40), id="a person ends it"),
    ],
)
def test_a_run_that_failed_has_not_come_back_before_a_step(
    later: list[tuple[float, str]], failed: tuple[float, float], ended: tuple[float, float] | None
) -> None:
    """Its launcher starts the ranks again, and they wait in ``init_process_group()``."""
    world = World(40)
    first, second = world.daemon(), world.daemon("b")
    for rank in (0, 1):
        first.rank(rank=rank, states=[(0, "warm"), (300, "failed")], end=RAISED, world_size=2)
        end = {"end": "lost", "signal": "SIGTERM"} if ended else None
        second.rank(rank=rank, states=[*AGAIN, *later], attached=500, end=end, world_size=2)
    alerts = world.alerts
    alerts.pop("WarmwatchWarmUpTooLong", None)
    assert alerts.pop("WarmwatchRunFailed") == [about(*failed)]
    assert alerts == ({"WarmwatchRunEnded": [about(*ended)]} if ended else {})
    text = world.texts("WarmwatchRunFailed", 15)["description"]
    assert text.startswith("It was started again, and none of its 2 ranks that are seen has made")


@pytest.mark.long
def test_a_run_that_is_started_again_within_a_minute_has_time_for_its_first_step() -> None:
    world = World(25)
    first, second = world.daemon(), world.daemon("b")
    for run, steps in (("quick", [(700.0, "warm")]), ("hangs", [])):
        first.rank(run, states=[(0, "warm"), (300, "failed")], end=RAISED)
        second.rank(run, states=[(330, "starting"), *steps], attached=330)
    ((name, labels, times),) = world.history()
    assert (name, labels["run"]) == ("WarmwatchRunFailed", "hangs")
    assert times == [about(15.75, 25)]


@pytest.mark.long
def test_warnings_on_recompiles_and_speed_outlive_a_daemon_that_is_down() -> None:
    """They are not sent again after it, and those that are over end with its first answer."""
    world = World(40)
    world.daemon("other")
    daemon = world.daemon(down=lambda at: 900 <= at < 1620)
    holds = {"thrashing", "nothing_captured", "never_compiled", "slower_than_before"}
    for run, until in (("lasts", 9999.0), ("over", 1200.0)):
        daemon.rank(run, conditions=dict.fromkeys(holds, (120.0, until)))

        def while_it_lasts(at: float, value: float, until: float = until) -> float | None:
            return value if 120 <= at < until else None

        who = {"run": run, "rank": "0"}
        daemon.add("warmwatch_slower_ratio", lambda at, of=while_it_lasts: of(at, 2.5), **who)
        daemon.add(
            "warmwatch_recompiles_after_warm_total",
            lambda at, until=until: min(at, until - 300) // 60,
            **who,
        )
        name = "warmwatch_compile_fallbacks_total"
        daemon.add(name, lambda at, of=while_it_lasts: of(at, 1), cause="recompile_limit", **who)
    fired: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        assert len(times) == 1, (name, labels, times)
        fired.setdefault(name, {})[labels.get("run", "")] = times[0]
    assert fired.pop("WarmwatchDaemonDown")
    assert fired.keys() == {
        "WarmwatchThrashing",
        "WarmwatchRecompilesAfterWarm",
        "WarmwatchEagerFallback",
        "WarmwatchNothingCaptured",
        "WarmwatchNeverCompiled",
        "WarmwatchSlowerThanBefore",
        "WarmwatchSlower",
    }
    for name, runs in fired.items():
        assert runs["lasts"][1] == 40, name
        assert runs["over"][1] == pytest.approx(27, abs=0.5), name


@pytest.mark.long
def test_the_first_scrape_after_a_gap_is_no_duration() -> None:
    """What was right before Prometheus was down for four minutes may have failed just now."""
    world = World(20)
    world.daemon(down=lambda at: 300 <= at < 540, unread=lambda at: at >= 300)
    (fired,) = world.alerts["WarmwatchSourceDown"]
    assert fired == about(11.25, 20)


@pytest.mark.long
def test_a_run_whose_records_cannot_be_read_keeps_its_alerts_and_gets_no_other() -> None:
    """Its daemon answers, and shows none of it."""
    world = World(40)
    unreadable = lambda at: 900 <= at < 1620  # noqa: E731
    daemon, other = world.daemon(unread=unreadable), world.daemon("other")
    daemon.rank("failed", states=[(0, "warm"), (300, "failed")], end=RAISED)
    daemon.rank("stalls", states=[(0, "warm"), (300, "stalled")])
    daemon.rank("lost", states=[(0, "warm"), (300, "lost")], end={"end": "lost"}, world_size=2)
    daemon.rank("lost", 1, world_size=2)
    daemon.rank("steps", world_size=2)
    other.rank("steps", 1, world_size=2)
    daemon.rank("raises", world_size=2)
    other.rank("raises", 1, [(0, "warm"), (1200, "failed")], end=RAISED, world_size=2)
    fired: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        fired.setdefault(name, {})[labels.get("run", "")] = times
    assert fired == {
        "WarmwatchRunFailed": {"failed": [about(5.6, 40)], "raises": [about(20.6, 27)]},
        "WarmwatchStalled": {"stalls": [about(6.1, 40)]},
        "WarmwatchStalledLong": {"stalls": [about(15.25, 40)]},
        "WarmwatchRankLost": {"lost": [about(5.75, 40)], "raises": [about(27, 40)]},
        "WarmwatchSourceDown": {"": [about(17, 26.75)]},
    }
    text = world.texts("WarmwatchRunFailed", 18)
    assert text["first_rank"].endswith("as last seen: no daemon shows it now")
