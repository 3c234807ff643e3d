"""What people see of recorded trainings: each command's output, reviewed.

The trainings ran with PyTorch 2.11 on a machine with 16 cores: compiling, after graph breaks, at
the recompile limit, killed, with two ranks, and so on. A change that is meant to alter nothing
alters none of these files; any other shows its whole effect here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import golden, outputs, recordings
from support.trainings import ROOT


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every output of every recording, written by one process whose clocks stand still."""
    folder = tmp_path_factory.mktemp("outputs")
    command = [sys.executable, "-m", "support.outputs", str(folder), *recordings.names()]
    done = subprocess.run(
        command, cwd=ROOT / "tests", capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", recordings.names())
def test_what_a_recorded_training_looks_like_has_been_reviewed(
    name: str, written: Path, tmp_path: Path
) -> None:
    different = []
    for file in outputs.FILES:
        try:
            text = (written / f"{name}.{file}").read_text()
            golden.check(f"outputs/{name}.{file}", text, tmp_path)
        except AssertionError as error:
            different.append(str(error))
    assert not different, "\n".join(different)
