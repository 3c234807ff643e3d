"""``warmwatch wait``: blocks until warm, and ends early where that will not come."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support import builders as b
from support.daemon import completed, daemon
from support.documents import status
from support.proxy import Proxy, proxy
from support.records import (
    compiling,
    ended,
    environment,
    held,
    live_slot,
    update,
    warm,
    write_record,
)
from support.terminal import terminal
from support.training_standin import Training, training
from support.values import replace
from support.waiting import Waiting, waiting
from warmwatch.shared.record import Slot, StepCounts
from warmwatch_monitor.base.errors import NoDaemonError
from warmwatch_monitor.client.daemon import Answer
from warmwatch_monitor.commands import wait as wait_command
from warmwatch_monitor.commands import wait as waiter
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.wait import Outcome, Wait
from warmwatch_monitor.model.snapshot import RankView


def wait(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["wait", *arguments])


def test_a_wait_for_warm_ends_immediately_if_the_run_is_warm(tmp_path: Path) -> None:
    with held(write_record(tmp_path, warm())):
        assert wait("--dir", str(tmp_path), "--timeout", "0").exit_code == 0


@pytest.mark.parametrize("named", [("gpt2",), ()])
def test_it_waits_for_a_run_that_does_not_exist_yet(tmp_path: Path, named: tuple[str, ...]) -> None:
    """One line of progress for each change of state, and the answer at the end."""
    with waiting(*named, "--dir", str(tmp_path), "--timeout", "600") as waiter:
        assert "waiting" in waiter.line()
        folder = write_record(tmp_path, compiling())
        with held(folder):
            while "compiling" not in (line := waiter.line()):
                assert line, "it ended before it saw the run compile"
            update(folder, warm())
            code, out, err = waiter.end()
    assert (code, err) == (0, "")
    assert out.startswith("gpt2: warm")


def test_at_the_timeout_it_exits_124_with_the_current_state(tmp_path: Path) -> None:
    with held(write_record(tmp_path, compiling())):
        began = time.monotonic()
        result = wait("--dir", str(tmp_path), "--timeout", "0.5")
        assert time.monotonic() - began >= 0.5
    assert result.exit_code == 124
    assert "not warm after 0.5 s: gpt2: compiling" in result.stderr


def test_a_run_that_is_killed_during_a_wait_ends_it_with_4(tmp_path: Path) -> None:
    with (
        held(write_record(tmp_path, compiling())) as training,
        waiting("--dir", str(tmp_path), "--timeout", "600") as waiter,
    ):
        assert "compiling" in waiter.line()
        training.kill()
        code, out, err = waiter.end()
    assert (code, out) == (4, "")
    assert "lost" in err
    assert "(before it was warm)" in err


def just_begun(slot: Slot) -> Slot:
    """The same, attached now on the wall clock."""
    return replace(slot, header=replace(slot.header, attached_epoch_ns=time.time_ns()))


@pytest.mark.parametrize("how", ["finished", "failed"])
def test_an_earlier_end_does_not_answer_a_wait_for_a_launch(tmp_path: Path, how: str) -> None:
    """Warm or not: it reports the earlier run and waits for the one that begins."""
    write_record(tmp_path, ended(warm(), how), name="before")
    with waiting("gpt2", "--dir", str(tmp_path), "--timeout", "600") as waiter:
        printed = waiter.line()
        assert printed.startswith(f"gpt2: {how}")
        assert printed.endswith("that was before this wait; waiting for it to start again")
        folder = write_record(tmp_path, compiling(), name="anew")
        with held(folder):
            while "compiling" not in (line := waiter.line()):
                assert line, "it ended before it saw the run compile"
            update(folder, warm())
            assert waiter.end()[0] == 0


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_without_a_timeout_a_run_that_failed_earlier_gets_time_to_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(wait_command, "NEW_START_SECONDS", 0.4)
    slot = ended(warm(), "failed") if how == "failed" else warm()  # no process has its lock
    write_record(tmp_path, slot)
    result = wait("gpt2", "--dir", str(tmp_path))
    assert result.exit_code == 4
    first, last = result.stderr.splitlines()
    assert first.endswith("; waiting for it to start again, at most 400 ms")
    assert last.startswith(f"gpt2: {how}")
    assert result.stderr.endswith("; not started again within 400 ms\n")


@pytest.mark.parametrize(
    ("make", "words"),
    [(warm, "(after it had been warm)"), (compiling, "(before it was warm)")],
)
def test_it_reports_whether_a_failed_run_had_been_warm(
    tmp_path: Path, make: Callable[[], Slot], words: str
) -> None:
    write_record(tmp_path, just_begun(ended(make(), "failed")))
    assert words in wait("gpt2", "--dir", str(tmp_path)).stderr


def test_a_run_that_compiled_nothing_is_not_reported_as_warm(tmp_path: Path) -> None:
    slot = live_slot(StepCounts(steps=9, last_step_ns=time.monotonic_ns()))
    write_record(tmp_path, just_begun(ended(slot, "failed")))
    assert "(after it had run eagerly)" in wait("gpt2", "--dir", str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("make", "goal", "code", "words"),
    [
        (lambda: ended(warm(), "failed"), "failed", 0, "gpt2: failed"),
        (lambda: ended(warm(), "failed"), "ended", 0, "gpt2: failed"),
        (lambda: ended(warm(), "failed"), "finished", 4, "(it ended and was never seen finished)"),
        (lambda: just_begun(ended(warm(), "finished")), "recompiling", 4, "seen recompiling"),
    ],
)
def test_every_state_and_the_end_can_be_waited_for(
    tmp_path: Path, make: Callable[[], Slot], goal: str, code: int, words: str
) -> None:
    write_record(tmp_path, make())
    result = wait("gpt2", "--until", goal, "--dir", str(tmp_path), "--timeout", "60")
    assert (result.exit_code, words in result.output) == (code, True)


@pytest.mark.parametrize("through", ["records", "daemon"])
def test_a_start_that_exits_already_does_not_answer_a_wait_for_the_next(
    tmp_path: Path, through: str
) -> None:
    """Its program has ended; the one that was just launched has no record yet."""
    place = tmp_path / "records"
    before = write_record(place, ended(warm(), "finished"), name="before")
    with ExitStack() as stack:
        stack.enter_context(held(before))
        words = ["--dir", str(place)]
        if through == "daemon":
            words = ["--address", stack.enter_context(daemon(place))]
        command = stack.enter_context(waiting("gpt2", *words, "--timeout", "600"))
        printed = command.line()
        assert printed.startswith("gpt2: exiting")
        assert printed.endswith("that was before this wait; waiting for it to start again")
        stack.enter_context(held(write_record(place, just_begun(warm()), name="next")))
        assert command.end()[0] == 0


def test_an_end_without_any_requested_state_has_its_own_exit_code(tmp_path: Path) -> None:
    write_record(tmp_path, just_begun(ended(warm(), "failed")))
    result = wait("gpt2", "--until", "compiling,finished", "--dir", str(tmp_path))
    assert result.exit_code == 4
    assert "(it ended and was never seen compiling or finished)" in result.stderr


@pytest.mark.parametrize(
    ("make", "until", "code"),
    [(warm, "warm", 0), (compiling, "warm", 124), (lambda: ended(warm(), "failed"), "finished", 4)],
    ids=["reached", "timeout", "ended"],
)
def test_json_is_the_last_answer_and_the_only_output(
    tmp_path: Path, make: Callable[[], Slot], until: str, code: int
) -> None:
    slot = make()
    folder = write_record(tmp_path, slot)
    other = write_record(tmp_path, warm("other"), name="other")
    words = ("gpt2", "--json", "--until", until, "--timeout", "0.1", "--dir", str(tmp_path))
    with held(other):
        if code == 4:
            result = wait(*words)
        else:
            with held(folder):
                result = wait(*words)
    answer = json.loads(result.stdout)
    assert result.exit_code == code
    assert [run["run"] for run in answer["runs"]] == ["gpt2"]
    assert answer["schema_version"] == 1
    assert bool(result.stderr) is (code != 0)


def test_on_a_terminal_one_line_shows_time_and_progress(tmp_path: Path) -> None:
    """It is written over, and gone at the end."""
    folder = write_record(tmp_path, compiling())
    with held(folder), terminal("wait", "--dir", str(tmp_path)) as shown:
        shown.read_until("gpt2: compiling")
        update(folder, warm())
        assert shown.read_to_end() == 0
    printed, last = shown.written.rsplit("\r\x1b[K", 1)
    assert re.match(r"\r\d[\d.]* m?s: gpt2: compiling", printed)
    assert "\n" not in printed
    assert last.startswith("gpt2: warm")


def test_a_daemon_that_restarts_during_the_wait_is_queried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may restart; a long absence is the same error as at the beginning."""
    monkeypatch.setattr(waiter, "_ABSENCE_SECONDS", 0.5)
    empty = {"runs": [], "warm": None, "summary": "", "compiling": None}
    answers = iter([{**empty, "incomplete": None, "left_out_uids": []}])

    def ask() -> Answer:
        for answer in answers:
            return answer
        raise NoDaemonError("no daemon answers at x")

    printed: list[str] = []
    with pytest.raises(NoDaemonError):
        Wait(ask, None, ["warm"], lambda _, words: printed.append(words)).block(60)
    assert printed[:2] == [
        "no run is alive; waiting for one",
        "no daemon answers at x; retrying",
    ]


class Clock:
    """Replaces ``time`` for a wait; sleeping advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 10**9 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


Reply = Answer | Exception


def waited(
    monkeypatch: pytest.MonkeyPatch,
    replies: Callable[[float], Reply],
    run: str | None = None,
    patience: float = 60.0,
    goal: str = "warm",
) -> Outcome | None:
    """How a wait ends if the seconds since its first poll decide the answer."""
    clock = Clock()
    monkeypatch.setattr(waiter, "time", clock)

    def ask() -> Answer:
        found = replies(clock.now - 1000.0)
        if isinstance(found, Exception):
            raise found
        return found

    return Wait(ask, run, [goal], lambda *_: None).block(patience).outcome


def at(moment: float | None, *views: RankView) -> Answer:
    """The answer of a daemon whose clock reads ``moment``."""
    return {**status(b.snapshot(*views)), "at": moment}


def attached(view: RankView, moment: float) -> RankView:
    who = replace(view.figures.who, attached_at=moment)
    return replace(view, figures=replace(view.figures, who=who))


FAR = 5_000.0  # the daemon's clock at the first poll: no real machine's


def test_a_state_that_passes_is_seen_after_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recompile of fast steps is over in less than the pause of other waits."""
    states = b.in_every_state()

    def replies(after: float) -> Reply:
        is_brief = 101.0 <= after < 101.3
        return at(FAR, attached(states["recompiling" if is_brief else "warm"], FAR))

    found = waited(monkeypatch, replies, patience=120.0, goal="recompiling")
    assert found is Outcome.REACHED


@pytest.mark.parametrize("named", ["gtp2", None])
def test_without_a_timeout_a_run_that_does_not_appear_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    """A mistyped name must not block a CI job for ever."""
    monkeypatch.setattr(wait_command, "APPEARS_SECONDS", 0.4)
    write_record(tmp_path, ended(warm("gpt2"), "finished"))
    result = wait(*filter(None, [named]), "--dir", str(tmp_path))
    first, last = result.stderr.splitlines()
    nothing = "no run named 'gtp2' (did you mean gpt2?); runs here: gpt2"
    nothing = nothing if named else "no run is alive"
    assert first.startswith(f"{nothing}; waiting for ")
    assert first.endswith(", at most 400 ms")
    assert last == f"{nothing}; waited 400 ms (--timeout S waits longer)"
    assert (result.exit_code, result.stdout) == (5, "")


def test_a_run_whose_record_is_removed_during_the_wait_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_record(tmp_path, compiling())
    pauses: list[str] = []

    def goes_on(_state: str, words: str) -> None:
        pauses.append(words)
        if len(pauses) == 1:
            shutil.rmtree(folder)

    with held(folder):
        query = wait_command.answer_source("gpt2", dir=str(tmp_path), own=True)
        last = Wait(query, "gpt2", ["warm"], goes_on, appears=0.6).block(60)
    assert pauses[0].startswith("gpt2: compiling")
    assert (last.outcome, last.words[:20]) == (Outcome.NO_RUN, "no run named 'gpt2';")


def test_without_a_daemon_it_keeps_the_signal_that_it_saw(tmp_path: Path) -> None:
    """Only the wait saw it: later commands read the history."""
    paths = {"WARMWATCH_STATE": str(tmp_path / "state"), "WARMWATCH_DIR": str(tmp_path / "records")}
    (tmp_path / "records").mkdir()
    body = (
        "import warmwatch, time; warmwatch.attach(run='killed'); warmwatch.step(); time.sleep(600)"
    )
    env = environment(**paths)
    with subprocess.Popen([sys.executable, "-c", body], env=env) as training:
        line = [sys.executable, "-m", "warmwatch_monitor", "wait", "killed", "--until", "ended"]
        with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True) as waiter:
            assert waiter.stderr is not None
            while not waiter.stderr.readline().startswith("killed: "):
                pass
            training.kill()
            assert waiter.wait() == 0
    shown = completed("status", "killed", env=env).stdout
    assert "killed by SIGKILL" in shown


@pytest.mark.parametrize(
    "arguments",
    [["--timeout", "soon"], ["--timeout", "-1"], ["--until", "x"], ["--until", "warm,"]],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    assert wait(*arguments).exit_code == 2


@pytest.mark.parametrize("how", ["failed", "lost", "finished"])
def test_it_waits_while_a_process_of_the_script_has_no_record_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Beyond the time for a new start, which begins again when that process is gone."""
    monkeypatch.setattr(wait_command, "NEW_START_SECONDS", 0.4)
    monkeypatch.setattr(wait_command, "APPEARS_SECONDS", 0.4)
    monkeypatch.setenv("WARMWATCH_OBSERVE", "on")
    began = time.monotonic()
    runs: set[str] = set()
    seen = [began]  # when a process of the script was there

    def is_starting(run: str, _after: float) -> bool:
        runs.add(run)
        there = time.monotonic() < began + 1.5
        if there:
            seen.append(time.monotonic())
        return there

    monkeypatch.setattr("warmwatch_monitor.sources.unattached.is_starting", is_starting)
    write_record(tmp_path, warm() if how == "lost" else ended(warm(), how))
    result = wait("gpt2", "--dir", str(tmp_path))
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"gpt2: {how}")
    assert lines[0].endswith("; a process of this script has started and has no record yet")
    assert time.monotonic() > seen[-1] + 0.3
    assert runs == {"gpt2"}
    assert result.exit_code == (5 if how == "finished" else 4)


@contextmanager
def before_a_daemon(place: Path, *words: str) -> Iterator[tuple[Training, Proxy, Waiting]]:
    """A wait that asks a daemon through a proxy, and sees a training compile."""
    with (
        training(place) as one,
        daemon(place) as url,
        proxy(url) as before,
        waiting(*words, "--address", before.address) as command,
    ):
        assert "compiling" in command.line()
        yield one, before, command


@pytest.mark.slow
def test_a_hung_daemon_delays_it_no_longer_than_the_timeout(tmp_path: Path) -> None:
    """Plus half a second for one last query; more if no time was left for it."""
    for seconds in (3, 12, 48):
        words = ("--timeout", str(seconds))
        with before_a_daemon(tmp_path / words[1], *words) as (_, before, command):
            before.silent = True
            code, _, err = command.end()
        assert code == 124
        hung, _, within = err.rpartition("has not answered within ")
        if hung:
            break
    assert 0.5 <= float(within.partition(" s")[0]) <= seconds


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with before_a_daemon(tmp_path) as (_, _, command):
        command.process.send_signal(signal.SIGINT)
        assert command.end()[0] == 130
