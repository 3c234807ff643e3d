"""One incident is one alert, which no lost scrape, restart or replaced pod delays or repeats."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from support.promtool import STEP, Daemon, World, about

pytestmark = pytest.mark.slow

HANG = [(0.0, "warm"), (300.0, "stalled")]
STALLED_AFTER, PAGED_AFTER = 6.0, 15.5  # minutes: after 1 of samples, after 10 of it


def lost_at_random(share: float, seed: int = 0) -> Callable[[float], bool]:
    random = Random(seed)
    lost = {at for at in range(0, 3600, STEP) if random.random() < share}
    return lost.__contains__


def every(minutes: float, seconds: float) -> Callable[[float], bool]:
    """For so long, each so many minutes."""
    return lambda at: at > 60 and at % (60 * minutes) < seconds


def hang(world: World, daemon: Daemon, ranks: int = 2) -> None:
    for rank in range(ranks):
        daemon.rank(rank=rank, states=HANG, world_size=ranks)


@pytest.mark.parametrize(
    "down",
    [
        pytest.param(lambda _: False, id="never", marks=pytest.mark.long),
        pytest.param(every(9, STEP), id="one in 9 min", marks=pytest.mark.long),
        pytest.param(every(3, 45), id="45 s in 3 min", marks=pytest.mark.long),
        pytest.param(lost_at_random(0.1), id="10 %", marks=pytest.mark.long),
        pytest.param(lost_at_random(0.3, seed=1), id="30 %"),
        pytest.param(lambda at: 660 <= at < 750, id="90 s of Prometheus", marks=pytest.mark.long),
    ],
)
def test_a_hang_pages_once_and_until_it_ends_whatever_scrapes_are_lost(
    down: Callable[[float], bool],
) -> None:
    world = World(40)
    hang(world, world.daemon(down=down))
    (warned,), (paged,) = world.alerts["WarmwatchStalled"], world.alerts["WarmwatchStalledLong"]
    assert STALLED_AFTER - 1 <= warned[0] <= STALLED_AFTER + 1
    assert PAGED_AFTER - 1 <= paged[0] <= PAGED_AFTER + 1
    assert (warned[1], paged[1]) == (40, 40)


LOST = [(0.0, "warm"), (300.0, "lost")]
ABORTED = {"end": "failed", "signal": "SIGABRT"}
RAISED = {"end": "failed", "exception": "RuntimeError", "exit_code": "1"}


def test_a_daemon_that_is_down_for_minutes_repeats_no_alert_of_a_run() -> None:
    """Nor makes one: of a run that it does not see, nothing has changed."""
    world = World(40)
    world.daemon("other")
    daemon = world.daemon(down=lambda at: 1020 <= at < 1620)
    daemon.rank(states=HANG)
    daemon.rank("hangs-later", states=[(0, "warm"), (840, "stalled")])  # 180 s before
    daemon.rank("aborted", states=[(0, "warm"), (300, "failed")], end=ABORTED)
    daemon.rank("large", states=LOST, end={"end": "lost", "signal": "SIGKILL"}, oom=True)
    daemon.rank("cancelled", states=LOST, end={"end": "lost", "signal": "SIGTERM"})
    daemon.rank("one-lost", states=LOST, end={"end": "lost"})
    daemon.rank("one-lost", rank=1)
    daemon.rank("compiles", states=[(0, "compiling")], conditions={"long_compile": (300, 9999)})
    found: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        assert len(times) == 1, (name, labels, times)
        found.setdefault(name, {})[labels.get("run", "")] = times[0]
    assert found == {
        "WarmwatchStalled": {"gpt2": about(6, 40), "hangs-later": about(15, 40)},
        # 10 minutes after the last step, but not while nothing is known
        "WarmwatchStalledLong": {"gpt2": about(15.25, 40), "hangs-later": about(27.25, 40)},
        "WarmwatchRunFailed": {"aborted": about(5.5, 40), "large": about(5.5, 40)},
        "WarmwatchRunEnded": {"cancelled": about(6.25, 40)},
        "WarmwatchRankLost": {"one-lost": about(5.75, 40)},
        "WarmwatchLongCompile": {"compiles": about(5.25, 40)},
        "WarmwatchDaemonDown": {"": about(19.25, 26.75)},
    }
    text = world.texts("WarmwatchLongCompile", 25)
    assert text["first_rank"] == (
        "rank 0 on node-a: compiling (all ranks: 1 compiling), as last seen: no daemon shows it now"
    )
    assert text["command"] == "on node-a: warmwatch stacks 'compiles'"


@pytest.mark.long
def test_what_was_last_seen_of_a_run_holds_until_a_daemon_answers_or_for_an_hour() -> None:
    world = World(100)
    back = world.daemon(down=lambda at: 900 <= at < 1500)
    back.rank("recovered", states=[*HANG, (1000, "warm")])
    gone = world.daemon("gone", down=lambda at: at >= 900)
    gone.rank("gone", states=HANG)
    gone.rank("aborted", states=HANG, world_size=2)
    # its other rank is on a host whose daemon answers: that one tells how the run goes on
    other = world.daemon("other")
    other.rank("aborted", 1, states=[*HANG, (1800, "failed")], end=ABORTED, world_size=2)
    gone.rank("moved", states=HANG)
    other.rank("moved", states=[(1200, "starting"), (1260, "warm")], attached=1200)
    fired: dict[str, dict[str, Any]] = {}
    for name, labels, times in world.history():
        fired.setdefault(name, {})[labels.get("run", "")] = times
    assert fired["WarmwatchStalled"] == {
        "recovered": [about(6, 25)],
        "gone": [about(6, 74.75)],
        "aborted": [about(6, 30)],
        "moved": [about(6, 20)],
    }
    assert fired["WarmwatchRunFailed"].keys() == {"aborted"}


@pytest.mark.long
def test_a_new_pod_of_the_daemon_repeats_no_alert() -> None:
    """Its instance is another; a replaced node's daemon reports the same records."""
    world = World(30)
    old = world.daemon("10.0.0.7:10464", host="node-a", pod="w-1", target=lambda at: at < 1000)
    new = world.daemon("10.0.0.9:10464", host="node-a", pod="w-2", target=lambda at: at >= 1030)
    for daemon in (old, new):
        hang(world, daemon)
    assert {name: len(times) for name, times in world.alerts.items()} == {
        "WarmwatchStalled": 1,
        "WarmwatchStalledLong": 1,
    }
    assert world.texts("WarmwatchStalledLong", 29)["command"] == (
        "kubectl -n monitoring exec w-2 -c monitor -- warmwatch stacks 'gpt2'"
    )


@pytest.mark.parametrize("nodes", [12, pytest.param(64, marks=pytest.mark.long)])
def test_a_hang_of_many_nodes_is_one_page(nodes: int) -> None:
    world = World(20)
    down = lost_at_random(0.1)
    for node in range(nodes):
        world.daemon(f"n{node}", down=down).rank(rank=node, states=HANG, world_size=nodes)
    assert world.alerts.keys() == {"WarmwatchStalled", "WarmwatchStalledLong"}
    assert f"(all ranks: {nodes} stalled)" in world.texts("WarmwatchStalledLong", 20)["first_rank"]


@pytest.mark.long
def test_a_rank_that_works_without_steps_is_no_hang_to_a_daemon_that_just_started() -> None:
    """Its first poll cannot see that the rank works."""
    world = World(30)
    states = [(0.0, "warm")]
    for restart in range(600, 1800, 300):
        states += [(restart, "stalled"), (restart + 5, "warm")]
    world.daemon(down=every(5, 30)).rank(states=states)
    new = world.daemon("b", host="node-a", target=lambda at: at >= 900)
    new.rank(states=[(0, "stalled"), (905, "warm")])
    assert not world.alerts.keys() & {"WarmwatchStalled", "WarmwatchStalledLong"}


def test_a_crash_loop_is_seen() -> None:
    world = World(40)
    daemon = world.daemon(down=every(3, 30))
    daemon.add("process_start_time_seconds", lambda at: at // 180)
    daemon.add("process_resident_memory_bytes", 3 * 2**30)
    hang(world, daemon)
    alerts = world.alerts
    assert alerts.keys() == {
        "WarmwatchDaemonRestarts",
        "WarmwatchStalled",
        "WarmwatchStalledLong",
    }
    assert len(alerts["WarmwatchDaemonRestarts"]) == 1
    text = world.texts("WarmwatchDaemonRestarts", 40)
    assert text["summary"] == "The daemon of a restarted 10 times in 30 minutes"
    assert text["description"].endswith("It used up to 3GiB.")


@pytest.mark.long
def test_scrapes_that_fail_now_and_then_are_one_alert() -> None:
    world = World(30)
    world.daemon(down=lost_at_random(0.3)).rank()
    assert world.alerts.keys() == {"WarmwatchScrapesFail"}
    assert len(world.alerts["WarmwatchScrapesFail"]) == 1
    assert world.texts("WarmwatchScrapesFail", 30)["summary"].endswith("of the scrapes of a fail")


@pytest.mark.long
def test_a_daemon_that_is_down_is_one_alert_and_its_runs_none() -> None:
    world = World(20)
    world.daemon(down=lambda at: at >= 600).rank()
    world.daemon("gone", target=lambda at: at < 600, down=lambda at: at >= 570).rank("other")
    assert world.alerts["WarmwatchDaemonDown"] == [about(12, 20)]
    assert world.alerts.keys() == {"WarmwatchDaemonDown", "WarmwatchNoDaemon"}


def test_a_lost_rank_is_one_page_and_the_end_of_its_run_the_next_line_of_the_same_group() -> None:
    """The others stall meanwhile; after their timeout they abort."""
    world = World(25)
    end = {"end": "lost", "signal": "SIGKILL", "exit_code": "", "exception": ""}
    daemon, other = world.daemon(), world.daemon("b", pod="w-9")
    other.rank(rank=1, states=[(0, "warm"), (300, "lost")], end=end, oom=True, world_size=2)
    states = [(0.0, "warm"), (400.0, "stalled"), (1000.0, "failed")]
    daemon.rank(states=states, end=ABORTED, world_size=2)
    alerts = world.alerts
    assert alerts.keys() == {"WarmwatchRankLost", "WarmwatchRunFailed"}
    assert alerts["WarmwatchRankLost"] == [about(5.75, 16.5)]
    assert alerts["WarmwatchRunFailed"] == [about(17.5, 25)]
    text = world.texts("WarmwatchRankLost", 15)
    assert text["summary"] == "gpt2 lost 1 rank while others live"
    assert text["first_rank"] == (
        "rank 1 on node-b: lost, killed by SIGKILL, out of memory (all ranks: 1 lost, 1 stalled)"
    )
    assert text["command"] == (
        "kubectl -n monitoring exec w-9 -c monitor -- warmwatch status 'gpt2'"
    )
    assert world.texts("WarmwatchRunFailed", 20)["first_rank"].startswith(
        "rank 1 on node-b: lost, killed by SIGKILL, out of memory"
    )


@pytest.mark.parametrize(
    ("steps", "hosts"),
    [
        (0, 1),
        pytest.param(5, 1, marks=pytest.mark.long),
        (0, 3),
        pytest.param(5, 2, marks=pytest.mark.long),
    ],
)
def test_a_run_that_is_started_again_and_again_and_fails_fires_once_and_soon(
    steps: int, hosts: int
) -> None:
    """It says how it is now; not how the start before ended, nor what a dead Prometheus left."""
    world = World(12)
    for number in range(hosts):  # each start is on the next host
        starts = range(30 * number, 720, 30 * hosts)
        states = [
            (at + more, state) for at in starts for more, state in ((0, "starting"), (15, "failed"))
        ]
        attached = lambda at, n=number: at - (at - 30 * n) % (30 * hosts)  # noqa: E731
        daemon = world.daemon("abc"[number])
        daemon.rank(states=states, attached=attached, end=RAISED, steps=steps)
    left = {"run": "gpt2", "rank": "1", "state": "warm", "instance": "z", "host": "node-z"}
    world.left("run:warmwatch_first_rank:info", **left)
    assert world.alerts == {"WarmwatchRunFailed": [about(1.75, 12)]}
    texts = [world.texts("WarmwatchRunFailed", at) for at in (3.0, 3.25)]  # one of each state
    assert {re.sub("node-.", "HOST", text["first_rank"]) for text in texts} == {
        "rank 0 on HOST: starting (all ranks: 1 starting)",
        "rank 0 on HOST: failed, RuntimeError, exit code 1 (all ranks: 1 failed)",
    }
    for text in texts:
        host = text["first_rank"].split()[3]
        assert text["command"] == f"on {host} warmwatch status 'gpt2'"
        assert re.search(r"It was started again [56] times in 10 minutes\.$", text["description"])


def test_a_lost_scrape_moves_no_duration_by_the_difference_of_the_clocks() -> None:
    """Also where a restart of Prometheus left a series of a run that is not there any more."""
    world = World(3)
    world.daemon(clock=lambda _: -600.0, down=lambda at: at == 120).rank()
    world.left("warmwatch_attach_timestamp_seconds", run="old", rank="0", instance="a")
    (((_, age),),) = world.samples(('rank:warmwatch_attach_seconds:age{run="gpt2"}', 2.0))
    assert age == pytest.approx(115)


@pytest.mark.parametrize(
    ("killed", "state", "name", "words"),
    [
        (0, "failed", {"signal": "SIGKILL"}, "killed by SIGKILL"),
        (1, "lost", {"signal": "SIGKILL"}, "killed by SIGKILL"),
        (1, "failed", {"exit_code": "3"}, "exit code 3"),
    ],
)
def test_the_rank_that_was_killed_comes_before_those_that_failed_of_it(
    killed: int, state: str, name: dict[str, str], words: str
) -> None:
    """Which a daemon saw end after them. One alone on its host is lost."""
    world = World(8)
    daemon = world.daemon()
    end = {"end": state, **name}
    daemon.rank(rank=killed, states=[(0, "warm"), (300.4, state)], end=end, world_size=2)
    raised = {"end": "failed", "exception": "RuntimeError", "exit_code": "1"}
    daemon.rank(rank=1 - killed, states=[(0, "warm"), (300, "failed")], end=raised, world_size=2)
    assert world.texts("WarmwatchRunFailed", 8)["first_rank"] == (
        f"rank {killed} on node-a: {state}, {words} (all ranks: "
        + ("2 failed)" if state == "failed" else "1 failed, 1 lost)")
    )


@pytest.mark.long
def test_a_rank_that_ended_too_early_is_named_with_those_that_wait_for_it_or_failed_of_it() -> None:
    """Its data were over, for example, and it ended without an error."""
    world = World(18)
    daemon, other, finished = world.daemon(), world.daemon("b"), {"end": "finished"}
    for run, at in (("early", 290.0), ("late", 330.0), ("hangs", 290.0)):
        other.rank(run, 1, [(0, "warm"), (at, "finished")], end=finished, world_size=2)
        state = "stalled" if run == "hangs" else "failed"
        daemon.rank(run, 0, [(0, "warm"), (300, state)], end=RAISED, world_size=2)
    alerts = world.notified(["WarmwatchRunFailed", "WarmwatchStalledLong"], 17)
    texts = {
        labels["run"]: text["first_rank"].partition(")")[2]
        for listed in alerts.values()
        for labels, text in listed
    }
    early = r"; rank 1 on node-b finished 1\dm \d+s ago: too early, if the others wait for it"
    assert all(re.fullmatch(early, texts.pop(run)) for run in ("early", "hangs"))
    assert texts == {"late": ""}


@pytest.mark.long
def test_a_rank_that_was_interrupted_comes_before_those_that_failed_of_it() -> None:
    world = World(8)
    daemon = world.daemon()
    interrupted = {"end": "interrupted", "exception": "KeyboardInterrupt"}
    states = [(0.0, "warm"), (296.0, "finished")]
    daemon.rank(rank=1, states=states, end=interrupted, world_size=2)
    raised = {"end": "failed", "exception": "RuntimeError", "exit_code": "1"}
    daemon.rank(rank=0, states=[(0, "warm"), (300, "failed")], end=raised, world_size=2)
    assert world.texts("WarmwatchRunFailed", 8)["first_rank"] == (
        "rank 1 on node-a: finished, KeyboardInterrupt (all ranks: 1 failed, 1 finished)"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("long_after", "name"), [(9999, "CompileSkew"), (500, "CompileSkew"), (300, "LongCompile")]
)
def test_a_compilation_that_others_wait_for_until_the_abort_is_one_page(
    long_after: float, name: str
) -> None:
    """Whichever of its alerts comes first; a new start ends it, and its own failure is another."""
    world = World(25)
    first, second = world.daemon(), world.daemon("b")
    long = {"long_compile": (float(long_after), 1200.0)}
    shared: dict[str, Any] = {"world_size": 2, "timeout": 600}
    first.rank(states=[(0, "warming"), (700, "failed"), (1200, "warm")], **shared)
    second.rank(
        rank=1,
        states=[(0, "compiling"), (1200, "warm")],
        attached=lambda at: 6 if at < 1200 else 1200,
        conditions=long,
        **shared,
    )
    began = min(435, long_after)
    assert world.alerts == {f"Warmwatch{name}": [about(began / 60, 20)]}
    assert world.texts(f"Warmwatch{name}", 15)["first_rank"] == (
        "rank 1 on node-b: compiling (all ranks: 1 compiling, 1 failed)"
    )


def test_a_compilation_that_others_wait_for_is_one_page() -> None:
    world = World(20)
    world.daemon().rank(states=[(0, "warming")], world_size=2, timeout=600)
    world.daemon("b").rank(
        rank=1, states=[(0, "compiling")], world_size=2, conditions={"long_compile": (360, 9999)}
    )
    assert world.alerts.keys() == {"WarmwatchLongCompile"}
    text = world.texts("WarmwatchLongCompile", 10)["description"]
    assert re.search("Other ranks have waited (9m|10m 0s)", text)  # as the clock falls


@pytest.mark.long
@pytest.mark.parametrize("ahead", [pytest.param(-480.0, marks=pytest.mark.long), 480.0])
def test_a_wrong_clock_is_one_alert_and_no_other(ahead: float) -> None:
    """Compilations, ends and attaching are compared over hosts, without its error."""
    world = World(30)
    wrong, right = world.daemon(clock=lambda _: ahead), world.daemon("b")
    wrong.rank(states=[(0, "compiling"), (120, "warm"), (600, "recompiling"), (700, "warm")])
    right.rank(rank=1, states=[(0, "warming"), (130, "warm")])
    # a job that is cancelled, over two hosts
    wrong.rank("cancelled", states=[(0, "warm"), (900, "lost")])
    right.rank("cancelled", 1, states=[(0, "warm"), (903, "lost")])
    # a rank that was started again on another host
    for before, after in ((wrong, right), (right, wrong)):
        run = "moved-to-" + after.host
        before.rank(run, states=[(0, "warm"), (300, "lost")])
        after.rank(run, states=[(360, "warm")], attached=360)
    assert world.alerts.keys() == {"WarmwatchClockOff", "WarmwatchRunEnded"}
    assert world.texts("WarmwatchClockOff", 20)["summary"] == (
        f"The clock of a and that of Prometheus differ by {'-' if ahead > 0 else ''}8m 0s"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "to",
    [
        -480.0,
        pytest.param(480.0, marks=pytest.mark.long),
        pytest.param(0.0, marks=pytest.mark.long),
    ],
)
def test_a_clock_that_is_set_while_trainings_run_is_one_alert_and_no_other(to: float) -> None:
    """Neither while it compiles nor stalls; or it was wrong before, and is set right."""
    world = World(25)
    before = 0.0 if to else -480.0
    daemon = world.daemon(clock=lambda at: to if at >= 600 else before)
    states = [(0.0, "warming"), (540.0, "compiling"), (700.0, "warm")]
    daemon.rank(states=states, world_size=2, timeout=600)
    daemon.rank(rank=1, states=[(0, "warming"), (700, "warm")], world_size=2, timeout=600)
    daemon.rank("stalls", states=[(0, "warm"), (480, "stalled"), (900, "warm")])
    daemon.rank("ends", states=[(0, "warm"), (580, "lost")])
    times = world.alerts
    assert times.pop("WarmwatchClockOff") == [about(12, 25) if to else about(2.25, 10)]
    assert times == {"WarmwatchStalled": [about(9, 15)], "WarmwatchRunEnded": [about(11, 25)]}


@pytest.mark.long
@pytest.mark.parametrize(
    "twice",
    [pytest.param(True, id="scraped twice", marks=pytest.mark.long), pytest.param(False, id="two")],
)
def test_two_daemons_of_one_host_are_one_alert(twice: bool) -> None:
    """The second did not see how a run ended."""
    world = World(25)
    daemons = world.daemon(), world.daemon("b", host="node-a", lag=1.5)
    for daemon, end in zip(daemons, ("failed", "failed" if twice else "lost"), strict=True):
        daemon.rank(attached=5.25)
        daemon.rank("over", states=[(0, "warm"), (600, end)], end={"end": end})
    alerts = world.alerts
    assert alerts.keys() == {"WarmwatchTwoDaemons", "WarmwatchRunFailed"}
    assert alerts["WarmwatchTwoDaemons"] == [about(3, 25)]
    assert (
        "The targets a b show the same runs"
        in (world.texts("WarmwatchTwoDaemons", 20)["description"])
    )


def test_a_gpu_that_fails_is_one_page_with_the_run_that_it_ended() -> None:
    world = World(22)
    daemon = world.daemon()
    daemon.add("warmwatch_gpu_xid_errors_total", lambda at: float(at >= 300), uuid="GPU-1", gpu="0")
    daemon.add("warmwatch_gpu_info", 1, uuid="GPU-1", gpu="0")
    end = {"end": "failed", "signal": "SIGABRT"}
    daemon.rank(states=[(0, "warm"), (310, "failed")], end=end, gpu="GPU-1", world_size=2)
    daemon.rank(rank=1, states=[(0, "warm"), (900, "failed")], end=end, world_size=2)
    assert world.alerts.keys() == {"WarmwatchGpuError", "WarmwatchRunFailed"}
    text = world.texts("WarmwatchGpuError", 10)
    assert "Rank 0 of gpt2 used it." in text["description"]
    assert text["command"] == "on node-a: dmesg | grep -i xid; nvidia-smi -q -i 0"


@pytest.mark.long
def test_a_hang_of_a_run_with_ranks_that_no_host_shows_names_their_number() -> None:
    world = World(20)
    world.daemon().rank(rank=1, states=[(0, "warm"), (120, "stalled")], world_size=2)
    assert world.alerts.keys() == {"WarmwatchStalled", "WarmwatchStalledLong"}
    assert (
        "1 of its ranks are on no host that reports"
        in (world.texts("WarmwatchStalledLong", 20)["description"])
    )


@pytest.mark.long
def test_a_run_that_failed_of_a_rank_that_did_not_come_names_the_number_of_those() -> None:
    world = World(6)
    for run, size in (("waited", 3), ("alone", 1)):
        states = [(0.0, "starting"), (240.0, "failed")]
        world.daemon(run).rank(run, states=states, end=RAISED, world_size=size)
    alerts = world.notified(["WarmwatchRunFailed"], 6)["WarmwatchRunFailed"]
    texts = {labels["run"]: text["description"] for labels, text in alerts}
    assert " 2 of its ranks were never seen: where the others waited" in texts["waited"]
    assert "never seen" not in texts["alone"]


@pytest.mark.long
def test_a_rank_that_hung_is_named_before_those_that_waited_for_it_until_their_timeout() -> None:
    """And it is a page before that, while it can still be examined."""
    world = World(20)
    first, second = world.daemon(), world.daemon("b")
    hangs = [(0.0, "warm"), (300.0, "stalled")]
    second.rank(rank=1, states=hangs, world_size=2, timeout=600)
    first.rank(states=[*hangs, (840, "failed")], end=RAISED, world_size=2, timeout=600)
    assert world.alerts == {
        "WarmwatchStalled": [about(6, 14)],
        "WarmwatchStalledLong": [about(9.25, 20)],  # one page, not another for the lost rank
    }
    text = world.texts("WarmwatchStalledLong", 18)
    assert text["first_rank"].startswith("rank 1 on node-b: stalled, no step for ")
    assert text["first_rank"].endswith(" (all ranks: 1 failed, 1 stalled)")
    assert text["command"] == "on node-b: warmwatch stacks 'gpt2'"


def test_a_rank_that_is_busy_without_a_step_is_named_with_those_that_wait_for_it() -> None:
    """Or before them, after their collectives have timed out, also after a person kills it."""
    world = World(20)
    first, second = world.daemon(), world.daemon("b")
    loops = [(0.0, "warm"), (1050.0, "lost")]
    killed = {"end": "lost", "signal": "SIGKILL"}
    silent = {"silent": (315.0, 1050.0)}
    second.rank(rank=1, states=loops, end=killed, quiet_since=300, conditions=silent, world_size=2)
    waits = [(0.0, "warm"), (360.0, "stalled"), (905.0, "failed")]
    first.rank(states=waits, end=RAISED, world_size=2, timeout=600)
    before, after = (world.texts("WarmwatchStalledLong", at) for at in (12, 17))
    assert before["first_rank"] == (
        "rank 0 on node-a: stalled, no step for 7m 0s (all ranks: 1 stalled, 1 warm); "
        "rank 1 on node-b is busy, without a step for 7m 0s"
    )
    assert after["first_rank"] == (
        "rank 1 on node-b: warm, no step for 12m 0s (all ranks: 1 failed, 1 warm)"
    )
    assert after["command"] == "on node-b: warmwatch stacks 'gpt2'"
    assert world.texts("WarmwatchRunFailed", 19)["first_rank"] == (
        "rank 1 on node-b: lost, killed by SIGKILL (all ranks: 1 failed, 1 lost)"
    )


@pytest.mark.long
def test_ranks_that_wait_for_one_that_saves_on_another_host_have_not_stalled() -> None:
    """Until that one has stalled as well; then it is the one to look at. A daemon that restarts
    meanwhile changes nothing.
    """
    world = World(25)
    waits = [(0.0, "warm"), (360.0, "stalled")]
    world.daemon().rank(states=waits, world_size=2)
    other = world.daemon("b", down=lambda at: 690 <= at < 780)
    other.rank(rank=1, states=[(0, "warm"), (900, "stalled")], world_size=2)
    other.add(
        "warmwatch_checkpoint_start_timestamp_seconds",
        lambda at: 300 if at >= 300 else None,
        run="gpt2",
        rank="1",
    )
    alerts = world.alerts
    assert alerts.keys() == {"WarmwatchStalled", "WarmwatchStalledLong"}
    assert alerts["WarmwatchStalled"] == [about(15.25, 25)]
    assert re.fullmatch(
        r"rank 1 on node-b: stalled, no step for 6m 0s, saves or evaluates for 1[45]m \d+s "
        r"\(all ranks: 2 stalled\)",
        world.texts("WarmwatchStalled", 20)["first_rank"],
    )


@pytest.mark.long
@pytest.mark.parametrize("again", [390.0, 480.0], ids=["soon", "late"])
def test_ranks_that_attach_one_after_another_are_no_lost_ranks(again: float) -> None:
    """A job that starts again; one that never comes is."""
    world = World(12)
    end = {"end": "lost", "signal": "SIGTERM"}
    for rank, daemon in enumerate((world.daemon(), world.daemon("b"))):
        daemon.rank(rank=rank, states=[(0, "warm"), (300, "lost")], end=end, world_size=2)
    world.daemon("c").rank(rank=0, states=[(320, "starting"), (480, "warm")], attached=320)
    if again < 400:
        world.daemon("d").rank(rank=1, states=[(again, "starting"), (480, "warm")], attached=again)
    lost = world.alerts.get("WarmwatchRankLost", [])
    assert lost == ([] if again < 400 else [about(7.5, 12)])


@pytest.mark.long
def test_a_run_that_is_busy_without_a_step_is_a_warning_after_what_it_did_before() -> None:
    """An endless loop is no stall: it may be an evaluation. On a busy host it is at times."""
    world = World(40)
    daemon = world.daemon()
    for run, limit in (("loops", 60), ("evaluated-for-long-before", 1800)):
        silent = {"silent": (330.0, 9999.0)}
        states = [(0.0, "warm"), (1500.0, "stalled"), (1620.0, "warm")]
        daemon.rank(
            run,
            states=states[: 3 if run == "loops" else 1],
            quiet_since=300,
            conditions=silent,
            stall_limit=limit,
        )
    found = {(name, labels["run"]): times for name, labels, times in world.history()}
    assert found == {
        ("WarmwatchStalled", "loops"): [about(20.5, 40)],
        ("WarmwatchStalled", "evaluated-for-long-before"): [about(35.5, 40)],
    }


@pytest.mark.long
@pytest.mark.parametrize(("began", "first"), [(295, 1), (800, 0)], ids=["timeout", "shortly"])
def test_a_save_that_hangs_is_named_before_the_ranks_whose_collectives_timed_out(
    began: float, first: int
) -> None:
    """But not one that goes on when a rank is killed."""
    world = World(18)
    failed = [(0.0, "warm"), (900.0, "failed")]
    world.daemon().rank(states=failed, end=RAISED, world_size=2, timeout=600)
    other = world.daemon("b")
    other.rank(rank=1, world_size=2, timeout=600)
    other.add(
        "warmwatch_checkpoint_start_timestamp_seconds",
        lambda at: began if at >= began else None,
        run="gpt2",
        rank="1",
    )
    text = world.texts("WarmwatchRankLost", 17)
    assert text["first_rank"].startswith(f"rank {first} on node-{'ab'[first]}: ")
    assert ("saves or evaluates for" in text["first_rank"]) == bool(first)
    assert text["command"].startswith(
        f"on node-{'ab'[first]}: warmwatch s{['tatus', 'tacks'][first]}"
    )


@pytest.mark.long
def test_a_rank_whose_record_was_removed_has_ended_while_the_run_goes_on_elsewhere() -> None:
    """A daemon removes it 15 minutes after the last of its ranks of the run has ended."""
    world = World(40)
    first, second = world.daemon(), world.daemon("b")
    hangs = [(0.0, "warm"), (300.0, "stalled")]
    second.rank(rank=1, states=hangs, world_size=2, timeout=600)
    first.rank(states=[*hangs, (840, "failed")], end=RAISED, world_size=2, removed=1740)
    finished = {"end": "finished", "exit_code": "0"}
    states = [(0.0, "warm"), (300.0, "finished")]
    first.rank("early", states=states, end=finished, world_size=2, removed=1200)
    second.rank("early", 1, world_size=2)
    # started again, and a rank that failed before is not started this time
    over: dict[str, Any] = {"end": RAISED, "restarts": True, "removed": 340}
    second.rank("again", 1, states=[(0, "warm"), (300, "failed")], **over)
    first.rank("again", states=[(0, "warm"), (303, "failed")], **over)
    second.rank("again", 0, attached=360, states=[(360, "warm")])
    # another run of this name that failed, beside one that lives
    second.rank("name", names={"world_size": "1"})
    for rank in (0, 1):
        first.rank(
            "name",
            rank,
            [(100, "warm"), (300, "failed")],
            attached=100,
            end=RAISED,
            names={"world_size": "2"},
            removed=420,
        )
    assert world.alerts == {
        "WarmwatchStalled": [about(6, 14)],
        "WarmwatchStalledLong": [about(9.25, 40)],
        "WarmwatchRunFailed": [about(5.5, 9)],
    }
    assert world.texts("WarmwatchStalledLong", 39)["first_rank"].endswith(
        "(all ranks: 1 failed, 1 stalled)"
    )


@pytest.mark.long
@pytest.mark.parametrize("state", ["starting", "warming"])
def test_a_rank_without_a_step_is_named_before_those_that_waited_for_it_until_their_timeout(
    state: str,
) -> None:
    world = World(18)
    first, second = world.daemon(), world.daemon("b")
    second.rank(rank=1, states=[(0, state)], world_size=2, timeout=600)
    waits = [(0.0, "compiling"), (60.0, "warming"), (700.0, "failed")]
    first.rank(states=waits, end=RAISED, world_size=2, timeout=600)
    # one that began as the other failed by itself is not waited for
    second.rank("fails", 1, states=[(660, "starting")], attached=660, world_size=2, timeout=600)
    first.rank("fails", states=waits, end=RAISED, world_size=2, timeout=600, attached=655)
    names = ["WarmwatchRankLost", "WarmwatchStalledLong"]
    texts = {
        labels["run"]: text
        for alerts in world.notified(names, 16).values()
        for labels, text in alerts
    }
    assert texts["gpt2"]["first_rank"] == (
        f"rank 1 on node-b: {state} (all ranks: 1 failed, 1 {state})"
    )
    assert texts["gpt2"]["command"] == "on node-b: warmwatch stacks 'gpt2'"
    assert texts["fails"]["first_rank"].startswith("rank 0 on node-a: failed, RuntimeError")


@pytest.mark.long
def test_a_rank_that_never_begins_is_a_page_before_the_timeout_of_those_that_wait_for_it() -> None:
    world = World(18)
    first, second = world.daemon(), world.daemon("b")
    for run, began in (("hangs", 9999), ("loads", 400), ("makes-steps", 9999)):
        states = [(0.0, "starting"), (began, "warm")]
        second.rank(run, 1, states=states, world_size=2, timeout=600)
        waits = [(0.0, "compiling"), (60.0, "warming"), (360.0, "stalled")]
        steps = 3.0 if run == "makes-steps" else 0.0
        states = [*waits[: 2 if steps else 3], (began + 5, "warm")]
        first.rank(run, states=states, world_size=2, timeout=600, stall_limit=300, steps=steps)
    ((name, labels, times),) = world.history()
    assert (name, labels["run"], times) == ("WarmwatchStalledLong", "hangs", [about(8.25, 18)])
    text = world.texts("WarmwatchStalledLong", 12)
    assert text["first_rank"].startswith("rank 1 on node-b: starting ")
    assert text["command"] == "on node-b: warmwatch stacks 'hangs'"


def test_a_hang_in_the_first_collective_is_a_page_before_its_timeout() -> None:
    """Once, though a daemon that was stopped has to see again that its rank does nothing."""
    world = World(12)
    for rank, daemon in enumerate((world.daemon(), world.daemon("b"))):
        again = [(500.0, "starting"), (515.0, "stalled")]
        states = [(0.0, "starting"), (305.0, "stalled"), *again]
        daemon.rank(rank=rank, states=states, world_size=2, timeout=600, stall_limit=300, steps=0)
    times = [about(6.25, 12)]
    assert world.alerts == {"WarmwatchStalled": times, "WarmwatchStalledLong": times}


def test_what_began_while_no_scrape_succeeded_is_as_old_as_the_first_sample_of_it() -> None:
    world = World(14)
    daemon = world.daemon(
        down=lambda at: 240 <= at < 450, clock=lambda at: -480.0 if at >= 435 else 0.0
    )
    daemon.rank(conditions={"never_compiled": (435, 9999)})
    for name, low in (("bytes", 2.0**20), ("inodes", 150.0)):
        high = 1e9 if name == "bytes" else 9e3
        daemon.add(
            f"warmwatch_record_directory_free_{name}",
            lambda at, low=low, high=high: low if at >= 435 else high,
            directory=name,
        )
    heat = {"reason": "hw_thermal_slowdown", "uuid": "GPU-1", "gpu": "0"}
    daemon.add("warmwatch_gpu_throttled", lambda at: float(at >= 435), **heat)
    began = {name: times[0][0] for name, _, times in world.history()}
    for name in ("ClockOff", "GpuThrottled", "NeverCompiled", "RecordDirectoryFull"):
        assert began.pop(f"Warmwatch{name}") == pytest.approx(9.5, abs=0.3)
    assert began.keys() == {"WarmwatchDaemonDown"}


@pytest.mark.long
def test_a_rank_that_a_signal_stopped_is_named_before_those_that_wait_for_it() -> None:
    """All have stalled at about the same time, and the page leads to its host."""
    world = World(18)
    daemons = world.daemon(), world.daemon("b")
    for rank, daemon in enumerate(daemons):
        daemon.rank(rank=rank, states=[(0, "warm"), (300 + rank, "stalled")], world_size=2)
        daemon.add("warmwatch_process_stopped", rank, run="gpt2", rank=str(rank))
    text = world.texts("WarmwatchStalledLong", 17)
    assert re.fullmatch(
        r"rank 1 on node-b: stalled, no step for \d+m \d+s, stopped or frozen "
        r"\(all ranks: 2 stalled\)",
        text["first_rank"],
    )
    assert text["command"] == "on node-b: warmwatch stacks 'gpt2'"
