"""Console script ``warmwatch``. Imports only the standard library until the extra is found.

The training environment has the agent without the monitor's libraries:
``commands/without_extra.py`` has what works there.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec

EXTRA = (
    *("click", "msgspec", "prometheus_client", "psutil"),
    *("rich", "starlette", "textual", "uvicorn"),
)
# What `status` loads, with `--watch`: to look for all takes it 2 million instructions.
_OF_STATUS = ("click", "msgspec", "rich")
_IMPORTED = 50_000  # objects that a command imports at most; the daemon sets its own threshold


def main() -> None:
    """Run the command line; exits with its code."""
    agent = find_spec("warmwatch")
    if agent is not None and not any(map(_has_shared, agent.submodule_search_locations or ())):
        name = "has the name of warmwatch's package"
        sys.stderr.write(f"warmwatch: {agent.origin} {name}; rename it\n")
        sys.exit(2)
    needed = _OF_STATUS if sys.argv[1:2] == ["status"] else EXTRA
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        from warmwatch_monitor.commands.without_extra import without_extra

        sys.exit(without_extra(sys.argv[1:], missing))
    # Imported modules stay: collections and the freeing at the end are an eighth of `status`.
    gc.set_threshold(_IMPORTED)
    from warmwatch_monitor.commands.cli import cli  # needs the extra

    try:
        cli(prog_name="warmwatch")
    except SystemExit as end:
        _exit_without_freeing(end.code)
        raise


def _has_shared(package: str) -> bool:
    """Whether it is the agent's: a module on ``PYTHONPATH`` may have its name."""
    return os.path.isdir(f"{package}/shared")  # noqa: PTH112 - `status` loads no pathlib


def _exit_without_freeing(code: object) -> None:
    """Exit, unless a thread, a library's exit function or unwritten output needs Python's way.

    Python waits for no daemon thread, such as the one that follows a living run's process.
    """
    functions = getattr(atexit, "_ncallbacks", lambda: 1)()
    waited_for = sum(
        not thread.daemon for thread in threading.enumerate()
    )  # the main thread is one
    if isinstance(code, int) and waited_for == 1 and not functions:
        with suppress(AttributeError, OSError, ValueError):  # it is closed, or its disk is full
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


if __name__ == "__main__":
    main()
