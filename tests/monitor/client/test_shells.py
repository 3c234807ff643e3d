"""Completion in the real shells: what they insert is the word that the command would get."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.records import compiling, environment, held, write_record
from support.shells import SHELLS, shell

pytestmark = pytest.mark.slow
HOSTILE = ("a b; touch x", "b$(touch x)", "c`touch x`", "d'e\"f", "g:h,i", "j[1]*?", "k\\l", "-m")
LINES = {  # line -> what its last word becomes
    "warmwatch stat": "status",
    "warmwatch status --al": "--all",
    "warmwatch wait --until warm,fai": "warm,failed",
    "warmwatch modes --mode red": "reduce-overhead",
    "warmwatch report --html scr": "script.py",
    "warmwatch run -- python scr": "script.py",
    "warmwatch status --dir reco": "records",
}


def typed(name: str) -> str:
    """The first character of a name; ``--``, where it looks like an option."""
    return f"-- {name[:2]}" if name.startswith("-") else name[:1]


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_inserts_what_the_command_accepts(tmp_path: Path, name: str) -> None:
    """A run's name is another user's text: no shell executes it."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: tests/support/install-programs.sh installs it")
    records = tmp_path / "records"
    (tmp_path / "script.py").touch()
    environ = environment(WARMWATCH_DIR=str(records), WARMWATCH_STATE="off")
    with ExitStack() as alive:
        for index, run in enumerate(HOSTILE):
            alive.enter_context(held(write_record(records, compiling(run), name=f"run{index}")))
        started = alive.enter_context(shell(name, tmp_path, environ))
        found = {line: started.words(line)[-1].rstrip("/") for line in LINES}
        assert found == LINES
        runs = [started.words(f"warmwatch status {typed(run)}")[-1] for run in HOSTILE]
        assert runs == [*HOSTILE]
    assert not (tmp_path / "x").exists()
