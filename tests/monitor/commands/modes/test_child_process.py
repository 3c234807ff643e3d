"""A command that is ended after enough steps, with every process that it started."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from support.records import wait_until
from warmwatch.shared.record.loss_file import GUARDS, REQUEST, SUFFIX
from warmwatch_monitor.commands.modes import child_process
from warmwatch_monitor.commands.modes.child_process import PATIENCE, Stops, run_until
from warmwatch_monitor.commands.modes.one_mode import Plan, _Followed

QUICK = (*tuple((number, 0.2) for number, _ in PATIENCE[:-1]), (signal.SIGKILL, 60.0))
PATIENT = tuple((number, 60.0) for number, _ in PATIENCE)


def ended(
    tmp_path: Path, line: str, patience: tuple[tuple[signal.Signals, float], ...] = PATIENT
) -> tuple[int, str | None]:
    """Of a shell's ``line``, once it has made the file ``ready``."""
    ready = tmp_path / "ready"
    with (tmp_path / "output").open("wb") as output, pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_process, "PATIENCE", patience)
        return run_until(
            ("sh", "-c", line.replace("READY", f"touch {ready}")),
            os.environ,
            output=output,
            poll=lambda: "seen" if ready.exists() else None,
            seconds=0.05,
            hurry=lambda: False,
        )


@pytest.mark.parametrize("ours", [signal.default_int_handler, signal.SIG_IGN])
def test_a_command_is_interrupted_as_with_ctrl_c(tmp_path: Path, ours: Any) -> None:
    """Also by `warmwatch modes ... &` of a script, which ignores SIGINT itself."""
    line = "trap 'echo bye; exit 3' INT; READY; while :; do sleep 0.05; done"
    before = signal.signal(signal.SIGINT, ours)
    try:
        assert ended(tmp_path, line) == (3, "seen")
        assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "output").read_text() == "bye\n"


@pytest.mark.parametrize("ignores", ["INT", "INT TERM"])
def test_a_process_that_ignores_the_interrupt_is_terminated_or_killed(
    tmp_path: Path, ignores: str
) -> None:
    code, _ = ended(tmp_path, f"trap '' {ignores}; READY; while :; do sleep 0.05; done", QUICK)
    assert -code in (signal.SIGTERM, signal.SIGKILL)


def test_child_processes_in_other_sessions_are_ended_too(tmp_path: Path) -> None:
    """The workers of torchrun have their own sessions and may ignore signals."""
    own = f"trap '' INT; echo $$ > {tmp_path}/worker; READY; while :; do sleep 0.05; done"
    (tmp_path / "own.sh").write_text(own.replace("READY", f"touch {tmp_path}/ready"))
    ended(tmp_path, f"setsid sh {tmp_path}/own.sh & wait", QUICK)
    worker = int((tmp_path / "worker").read_text())
    wait_until(lambda: not psutil.pid_exists(worker) or dead(worker))


def test_orphaned_processes_are_ended_too(tmp_path: Path) -> None:
    """For example, a script's background job after its shell exited; Ctrl-C does not reach it."""
    job = f"echo $$ > {tmp_path}/worker; READY; while :; do sleep 0.05; done"
    (tmp_path / "job.sh").write_text(job.replace("READY", f"touch {tmp_path}/ready"))
    ended(tmp_path, f"(sh {tmp_path}/job.sh &); while :; do sleep 0.05; done", QUICK)
    worker = int((tmp_path / "worker").read_text())
    try:
        assert dead(worker)
    finally:
        if not dead(worker):
            os.kill(worker, signal.SIGKILL)


def dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


@pytest.mark.parametrize("interrupted", [False, True])
def test_guard_checks_are_measured_after_the_steps_unless_it_is_interrupted(
    tmp_path: Path, interrupted: bool
) -> None:
    stops = Stops()
    plan, none = Plan("default", "fit", timeout=60.0, steps=9), cast("Any", None)
    followed = _Followed(none, plan, stops, none, guards=tmp_path)
    (tmp_path / f"0-1{SUFFIX}").touch()
    assert followed._then_guards("steps") is None
    assert (tmp_path / REQUEST).exists()
    assert followed.poll() is None
    if interrupted:
        stops.take(signal.SIGINT, None)
    else:
        (tmp_path / f"0-1{GUARDS}").touch()
    assert followed.poll() == ("interrupted" if interrupted else "steps")
