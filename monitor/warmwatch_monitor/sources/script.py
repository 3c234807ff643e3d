"""The script of another process: the run that it is, and what it imports of ``warmwatch``.

Functions raise OSError if the process is gone or may not be read.
"""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator, Sequence

from warmwatch.shared.run_name import launcher_run, program_name
from warmwatch_monitor.base.timeouts import DISK_SECONDS, read_text, within
from warmwatch_monitor.sources import proc

_LARGEST = 1 << 20  # bytes
_ATTACHING = ("warmwatch.auto", "warmwatch.attach", "warmwatch.frameworks", "warmwatch.lifecycle")
_LAUNCHED = "/warmwatch/_boot"  # on the PYTHONPATH of `warmwatch run`


def argument(command: Sequence[str]) -> str:
    """The script of a Python command, or the last name of its module.

    ``-c`` or empty if it runs none.
    """
    option, name = proc.python_program(command)
    return name.rpartition(".")[2] if option == "-m" else name or option


def run_name(pid: int) -> str:
    """The name that the agent gives its run, unless its code passes another to ``attach``."""
    variables = proc.text(f"{proc.PROC}/{pid}/environ").split("\0")
    environ = dict(variable.partition("=")[::2] for variable in variables)
    script = argument(proc.command(pid))
    directory = os.readlink(f"{proc.PROC}/{pid}/cwd")
    return (
        environ.get("WARMWATCH_RUN")
        or launcher_run(environ)
        or program_name([script], environ, directory=directory, notebook=None)
    )


def attaches_nothing(pid: int) -> bool:
    """Whether its script imports ``warmwatch``, and nothing of it that attaches the agent.

    ``False`` if that is not known.
    """
    script = argument(proc.command(pid))
    if not script.endswith(".py") or _LAUNCHED in proc.text(f"{proc.PROC}/{pid}/environ"):
        return False
    place = "root" if script.startswith("/") else "cwd"  # a container has files of its own
    path = f"{proc.PROC}/{pid}/{place}/{script}"
    return within(DISK_SECONDS, lambda: _imports_alone(path), False, path=path)


def _imports_alone(path: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            used = set(_used(read_text(path, _LARGEST)))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return "warmwatch" in used and not any(name.startswith(_ATTACHING) for name in used)


def _used(text: str) -> Iterator[str]:
    """The modules that a script imports, and what may be the call of ``attach``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield f"warmwatch.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # of importlib.import_module
