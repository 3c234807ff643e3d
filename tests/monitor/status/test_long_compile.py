"""A compilation that takes far too long: sentence, count, and how it differs from a working one."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from support import builders as b
from support.documents import status
from support.records import compiling, held, wait_until, write_record
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.status import exit_code
from warmwatch_monitor.figures.machine import Compiler
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.pipeline.judging import Work, follow_work
from warmwatch_monitor.sources.host import HostSource
from warmwatch_monitor.sources.processes import known_name
from warmwatch_monitor.status.words.conditions import long_compile
from warmwatch_monitor.status.words.sentence import summary

IDLE = ProcessReading(
    pid=4711, cpu_seconds=9.0, resident_bytes=1, cpu_ratio=0.0, workers_busy=0, workers_idle=2
)
CC1PLUS = Compiler(pid=4733, name="cc1plus", cpu_seconds=310.0, busy=True)


def hanging(seconds: float = 720, longest: float = 62) -> Slot:
    """A rank that was warm, in a recompile that does not end."""
    counts = replace(
        b.RECOMPILING.compile,
        active_since_ns=b.ago(seconds),
        episode_began_ns=b.ago(seconds),
        accounted_ns=b.ago(seconds),
        longest_activity_ns=round(longest * b.SECOND),
    )
    steps = replace(b.RECOMPILING.steps, last_step_ns=b.ago(seconds))
    return replace(b.RECOMPILING, compile=counts, steps=steps)


def seen(process: ProcessReading | None, idle: float | None = None) -> RankView:
    return replace(b.view(hanging(), process=process), idle_seconds=idle)


HELD_AGAINST = "the longest before took 62 s"


@pytest.mark.parametrize(
    ("view", "doing"),
    [
        (seen(None), ""),
        (seen(IDLE), ""),
        (seen(IDLE, 240), "; nothing of it is busy, for 240 s now: it hangs"),
        (seen(IDLE, 4), ""),
        (
            seen(replace(IDLE, compilers=(CC1PLUS,))),
            "; cc1plus (pid 4733) is busy (310 s of CPU): it works, or loops",
        ),
        (
            seen(replace(IDLE, compilers=(replace(CC1PLUS, busy=False, stopped=True),)), 240),
            "; cc1plus (pid 4733) is stopped: it hangs until it is let go on",
        ),
        (seen(replace(IDLE, workers_busy=2)), "; 2 compile workers busy: it works, or loops"),
        (
            seen(replace(IDLE, cpu_ratio=0.99)),
            "; its process is busy (99 % of a core): it works, or loops",
        ),
        (seen(replace(IDLE, stopped=True), 240), "; its process is stopped"),
    ],
    ids=["unseen", "a first look", "idle", "pause", "child", "stopped", "workers", "self", "^Z"],
)
def test_a_hung_compilation_has_other_words_than_a_working_one(view: RankView, doing: str) -> None:
    snapshot = b.snapshot(view)
    assert f"; too long: {HELD_AGAINST}{doing}" in b.in_words(view)
    assert f"; too long: {HELD_AGAINST}" in summary(snapshot)
    words = f"one compilation takes 12 min, {HELD_AGAINST}{doing}"
    (rank,) = status(snapshot)["runs"][0]["ranks"]
    held = {"condition": "long_compile", "words": words, "advice": None}
    assert held in rank["conditions"]
    assert words in rank["evidence"]
    assert rank["compile"]["limit_seconds"] == 5 * 62


def test_a_hung_compilation_needs_attention_and_has_a_series() -> None:
    snapshot = b.snapshot(seen(None))
    assert exit_code(status(snapshot)) == 4
    body = render(snapshot, None)[0].decode()
    assert 'warmwatch_condition{condition="long_compile",rank="0",run="gpt2"} 1.0' in body
    assert 'warmwatch_compile_limit_seconds{rank="0",run="gpt2"} 310.0' in body
    usual = status(b.snapshot(b.view(hanging(seconds=100))))
    assert (exit_code(usual), usual["runs"][0]["ranks"][0]["conditions"]) == (3, [])


@pytest.mark.parametrize(
    "process",
    [
        None,
        replace(IDLE, cpu_ratio=None),
        replace(IDLE, cpu_ratio=0.2),
        replace(IDLE, workers_busy=1),
        replace(IDLE, workers_busy=None),
        replace(IDLE, compilers=(CC1PLUS,)),
        replace(IDLE, compilers=(replace(CC1PLUS, busy=None),)),
    ],
)
def test_working_or_invisible_processes_are_not_called_idle(
    process: ProcessReading | None,
) -> None:
    assert follow_work(Work(busy_ns=5), process, (), 900, uses_gpus=False).busy_ns == 900


def test_idle_time_counts_from_the_last_busy_process() -> None:
    work = follow_work(Work(busy_ns=5), IDLE, (b.gpu(utilization_ratio=0.0),), 900, uses_gpus=True)
    assert work.busy_ns == 5
    assert follow_work(work, IDLE, (b.gpu(),), 901, uses_gpus=True).busy_ns == 901


@pytest.mark.parametrize("named", [("gpt2",), ()])
def test_a_wait_for_warm_ends_at_a_hung_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    monkeypatch.setenv("WARMWATCH_LONG_COMPILE", "0.5")
    with held(write_record(tmp_path, compiling())):
        waited = CliRunner().invoke(cli, ["wait", *named, "--dir", str(tmp_path)])
    assert waited.exit_code == 4
    assert "(it may never be warm)" in waited.stderr


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("cc1plus", "cc1plus"),
        ("x86_64-linux-gnu-g++-12", "g++"),
        ("clang++-15", "clang++"),
        ("ptxas", "ptxas"),
        ("ninja", "ninja"),
        ("python3", None),
        ("patient-as", "as"),
        ("secret", None),
        ("cc1plus\n", None),
        ("gcc " * 90, None),
    ],
)
def test_compilers_are_recognized_by_a_closed_list_of_names(name: str, called: str | None) -> None:
    assert known_name(name) == called


def test_a_compiler_process_of_the_training_is_seen_working_and_stopped(tmp_path: Path) -> None:
    compiler = tmp_path / "cc1plus"
    sleep = shutil.which("sleep")
    assert sleep
    shutil.copy(sleep, compiler)
    below = f'"{compiler}" 600 & "{compiler}" 600 & wait'
    parent = subprocess.Popen(["bash", "-c", below])
    watched = psutil.Process(parent.pid)
    try:
        wait_until(lambda: [one.name() for one in watched.children()] == ["cc1plus"] * 2)
        # the CPU time of their start is little of their life then
        wait_until(lambda: time.time() > watched.children()[1].create_time() + 1.0)
        now = [0.0]
        source = HostSource(clock=Clock(monotonic_ns=lambda: int(now[0] * 1e9)))
        first = source.read([parent.pid])[parent.pid].compilers
        assert [(one.name, one.busy) for one in first] == [("cc1plus", None)] * 2
        halted = watched.children()[1]
        halted.suspend()
        wait_until(lambda: halted.status() == psutil.STATUS_STOPPED)
        now[0] = 10.0
        again = source.read([parent.pid])[parent.pid].compilers
        assert [one.busy for one in again] == [False, False]
        assert [one.pid for one in again if one.stopped] == [halted.pid]
    finally:
        for child in watched.children():
            child.kill()
        parent.kill()
        parent.wait()


def test_the_exceeded_limit_is_the_one_reported() -> None:
    """An absolute limit below the one from the longest earlier compilation is reported alone."""
    view = b.view(hanging(seconds=22, longest=2))
    progress = replace(view.figures.progress, compile_limit_seconds=20.0)
    limited = replace(view, figures=replace(view.figures, progress=progress))
    assert "the limit is 20 s" in long_compile(limited).text
    assert "the longest before took" in long_compile(b.view(hanging())).text
