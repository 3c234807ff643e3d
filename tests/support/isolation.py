"""Keeps tests apart from this machine's own records, history and socket.

A command of a test may still ask the default address. A daemon there watches other records than
``WARMWATCH_DIR``, so the command ignores it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

_PLACE = Path(tempfile.gettempdir(), f"warmwatch-tests-{os.getpid()}")
# one for all workers of a run: the process that started them
_CONTROLLER = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
SHARED = Path(tempfile.gettempdir(), f"warmwatch-tests-{_CONTROLLER}", "shared")
VARIABLES = {
    "WARMWATCH_DIR": str(_PLACE),
    "WARMWATCH_STATE": "off",
    "WARMWATCH_SOCKET": "off",
    "WARMWATCH_OBSERVE": "off",  # do not look for trainings that other tests run meanwhile
}


def isolate() -> None:
    """Change the environment of this process, which its children inherit."""
    _PLACE.mkdir(exist_ok=True)
    for name in [one for one in os.environ if one.startswith("WARMWATCH_")]:
        del os.environ[name]
    os.environ.update(VARIABLES)
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        os.environ[name] = str(_PLACE)
    # container images often set it: each Python that a test starts would compile our sources
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def clean_up() -> None:
    """Remove the directory. Workers of xdist run no exit handlers."""
    shutil.rmtree(_PLACE, ignore_errors=True)
