"""Python processes that commands start import nothing from the working directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import warmwatch
import warmwatch_monitor
from support.records import environment, wait_until
from warmwatch_monitor.base.interpreter import python

_NAMES = ("warmwatch_monitor", "warmwatch", "json", "msgspec", "psutil", "runpy", "torch", "click")
_OPTION = (3, 11)


@pytest.fixture(name="planted")
def _planted(tmp_path: Path) -> Path:
    """A directory with modules that leave a trace if they are imported."""
    place = tmp_path / "planted"
    place.mkdir()
    for name in _NAMES:
        text = f"open({str(tmp_path / 'trace')!r}, 'a').write(__name__)\n"
        (place / f"{name}.py").write_text(text)
    return place


@pytest.mark.parametrize("version", [sys.version_info, (3, 10)])
@pytest.mark.parametrize("safe", ["", "1"])
def test_a_started_python_imports_nothing_from_the_working_directory(
    planted: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], safe: str
) -> None:
    """With the option of Python 3.11 and without it, also if the user sets the variable of it."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", version)
        command = python("warmwatch_monitor")
    assert ("-P" in command) == (version >= _OPTION)
    environ = environment(PYTHONSAFEPATH=safe)
    done = subprocess.run(
        [*command, "serve", "--help"],
        cwd=planted,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "serve [OPTIONS]" in done.stdout
    assert not (planted.parent / "trace").exists()


@pytest.mark.slow
def test_run_serve_starts_its_daemon_without_modules_of_the_working_directory(
    planted: Path,
) -> None:
    program = Path(sys.executable).with_name("warmwatch")
    served = planted.parent / "served"
    waits = f"until [ -e {served} ]; do sleep 0.05; done"
    with subprocess.Popen(
        [program, "run", "--serve", "--", "sh", "-c", waits],
        cwd=planted,
        env=environment(WARMWATCH_STATE="off"),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        wait_until(lambda: process.stderr and "live page: " in process.stderr.readline())
        served.touch()
        process.communicate()
    assert process.returncode == 0
    assert not (planted.parent / "trace").exists()


def test_no_other_place_in_the_code_starts_a_python() -> None:
    for package in (warmwatch, warmwatch_monitor):
        assert package.__file__
        for file in Path(package.__file__).parent.rglob("*.py"):
            uses = re.findall(r"\[[^\]]*sys\.executable", file.read_text())
            assert not uses or file.name == "interpreter.py", file
