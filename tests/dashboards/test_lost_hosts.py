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
        "WarmwatchHostLost": {"raised": [about(7, 30)], "aborted": [about(8.75, 30)]},
        "WarmwatchDaemonDown": {"": [about(7, 30)]},
    }
    ((_, text),) = [
        alert
        for alert in world.notified(["WarmwatchHostLost"], 10)["WarmwatchHostLost"]
        if alert[0]["run"] == "raised"
    ]
    assert text["summary"] == "raised stands still: a host with 1 of its ranks does not answer"
    assert "Prometheus has not reached node-gone for 2 minutes" in text["description"]
    assert text["first_rank"] == (
        "rank 1 on node-other: failed, RuntimeError, exit code 1 (all ranks: 1 failed); "
        "1 more, when last seen, on node-gone, which does not answer"
    )
    assert text["command"] == "ping -c 3 node-gone"
    down = world.texts("WarmwatchDaemonDown", 10)["description"]
    assert "it had ranks of aborted (1), raised (1)." in down


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
        "WarmwatchRunFailed": {"raises": [about(16.25, 25)]},
        "WarmwatchRankLost": {"raises": [about(25, 30)], "raised-before": [about(4.25, 30)]},
    }
    text = world.texts("WarmwatchRunFailed", 20)
    assert text["first_rank"].endswith(
        "; 1 more, when last seen, on node-down, which does not answer"
    )
    assert text["description"].startswith("No rank is seen to live; the last ended")


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
        "WarmwatchRankLost": {"elsewhere": [about(6.25, 20)]},
    }
    assert world.texts("WarmwatchRankLost", 15)["first_rank"].startswith(
        "rank 0 on node-gone: lost"
    )


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
    assert world.alerts["WarmwatchHostLost"] == [about(7, 10)]
    assert world.alerts.keys() == {
        "WarmwatchHostLost",
        "WarmwatchDaemonDown",
        "WarmwatchRunFailed",  # until a rank of it makes a step
        "WarmwatchStalled",
    }


AGAIN = [(500.0, "starting")]


@pytest.mark.parametrize(
    ("later", "failed", "ended"),
    [
        pytest.param([], (6.25, 40), None, id="hangs"),
        pytest.param(
            [(1500.0, "compiling"), (1800.0, "warm")], (6.25, 30), None, id="steps after all"
        ),
        pytest.param([(1500.0, "lost")], (6.25, 25), (26.25, 40), id="a person ends it"),
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


def test_a_run_that_is_started_again_within_a_minute_has_time_for_its_first_step() -> None:
    world = World(25)
    first, second = world.daemon(), world.daemon("b")
    for run, steps in (("quick", [(700.0, "warm")]), ("hangs", [])):
        first.rank(run, states=[(0, "warm"), (300, "failed")], end=RAISED)
        second.rank(run, states=[(330, "starting"), *steps], attached=330)
    ((name, labels, times),) = world.history()
    assert (name, labels["run"]) == ("WarmwatchRunFailed", "hangs")
    assert times == [about(15.75, 25)]


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
