"""The command line of an install without the monitor's libraries. Standard library only.

The training environment has the agent alone, and there ``--help``, ``--version``, ``run`` and
``demo`` work all the same.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence

from warmwatch import __version__
from warmwatch_monitor.base.interpreter import python
from warmwatch_monitor.commands import COMMANDS, GROUPS
from warmwatch_monitor.commands.launch import become, environment, startable

_MISSING = 2
# pip adds the dependencies to the installed package, of whatever origin
_EXTRA = "pip install 'warmwatch[monitor]'"
_ALONE = {"run": "run [--run NAME] [--] CMD...", "demo": "demo"}  # works without the libraries


def without_extra(arguments: Sequence[str], missing: Sequence[str]) -> int:
    """Run ``warmwatch ARGUMENTS`` without the libraries ``missing``; its exit code."""
    name = arguments[0] if arguments else "--help"
    if name in ("-V", "--version"):
        sys.stdout.write(f"warmwatch, version {__version__}\n")
        return 0
    if name in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0
    if name in _ALONE and arguments[1:2] in (["-h"], ["--help"]):
        usage = f"Usage: warmwatch {_ALONE[name]}\n\n  {COMMANDS[name][1]}\n"
        sys.stdout.write(f"{usage}\nMore options need the monitor's libraries: {_EXTRA}\n")
        return 0
    if name == "run":
        return _run(arguments[1:])
    if name == "demo" and len(arguments) == 1:
        return _demo()
    if name not in COMMANDS and not name.startswith("-"):
        return _refuse(f"No such command {name!r}; commands: {', '.join(COMMANDS)}")
    wanted = f"`warmwatch {name}` needs" if name in COMMANDS else "the commands need"
    text = f"the monitor's libraries, which are not installed ({', '.join(missing)})"
    return _refuse(f"{wanted} {text}; get them with: {_EXTRA}")


def _refuse(words: str) -> int:
    sys.stderr.write(f"warmwatch: {words}\n")
    return _MISSING


def _help() -> str:
    width = max(map(len, COMMANDS))
    parts = ["Usage: warmwatch [OPTIONS] COMMAND [ARGS]...\n"]
    for title, group in GROUPS.items():
        parts.append(f"\n{title}:\n")
        for name, (_, text) in group.items():
            mark = "" if name in _ALONE else " *"
            parts.append(f"  {name.ljust(width)}  {text}{mark}\n")
    parts.append(f"\n* not installed here; get these commands with: {_EXTRA}\n")
    return "".join(parts)


def _run(arguments: Sequence[str]) -> int:  # noqa: RET503 - it becomes CMD
    """``run [--run NAME] [--] CMD...``: becomes CMD. Other options need the libraries."""
    rest, name = list(arguments), None
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        option, given, value = option.partition("=")
        if option in ("--run", "--name") and (given or rest):
            name = value if given else rest.pop(0)
        else:
            needs = f"`warmwatch run {option}` needs the monitor's libraries"
            return _refuse(f"{needs}; get them with: {_EXTRA}")
    if not rest or (name is not None and not name.strip()):
        return _refuse(f"usage: warmwatch {_ALONE['run']}")
    with startable(rest):
        become(tuple(rest), environment(os.environ, run=name))


def _demo() -> int:
    """The demo's training, which prints the agent's own messages; no daemon, no live view."""
    if importlib.util.find_spec("torch") is None:
        return _refuse("the demo trains with PyTorch; install it with: pip install torch")
    sys.stdout.write(f"The agent's own messages. The live view: {_EXTRA}\n")
    sys.stdout.flush()
    environ = {**os.environ, "WARMWATCH_SAY": "1", "WARMWATCH_RUN": "demo"}
    return subprocess.call(python("warmwatch_monitor.commands.demo_training"), env=environ)
