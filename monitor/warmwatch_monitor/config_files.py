"""Configuration files: they set the variables that the environment does not.

Files have the names of the variables. The environment goes before files; the agent reads the
environment alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from warmwatch.shared.variables import DEFAULTS, Monitor, defaults, unknown_variables
from warmwatch_monitor.bounded import read_text
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import note
from warmwatch_monitor.timeouts import DISK_SECONDS, within

_LONGEST = 4 << 20  # bytes; a project's file also has the settings of other tools
_FILE, _PROJECT = "warmwatch.toml", "pyproject.toml"
# A project's files may be somebody else's: nothing there may send credentials elsewhere, open the
# daemon to others, turn its access log off, or name places to read and write.
_IN_PROJECTS = frozenset(
    {
        *("WARMWATCH_INTERVAL", "WARMWATCH_GPU_INTERVAL", "WARMWATCH_OBSERVE"),
        *("WARMWATCH_RETENTION", "WARMWATCH_LONG_COMPILE", "WARMWATCH_PRICE_PER_GPU_HOUR"),
    }
)
origins: dict[str, str] = {}  # of the variables that files have set in this process


def apply(environ: MutableMapping[str, str]) -> None:
    """Set the variables that files name and ``environ`` does not. Raises UsageError."""
    for path, values in _files(environ):
        for name, value in values.items():
            if name not in environ:
                environ[name] = value
                origins[name] = path


def _files(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Path and values of each file that sets something, the first one wins."""
    for path, section in ((_FILE, ()), (_PROJECT, ("tool", "warmwatch"))):
        if values := _read_in_time(path, section):
            if denied := sorted(values.keys() - _IN_PROJECTS):
                raise UsageError(
                    f"{path}: {denied[0]} cannot be set in a project, whose files may come from "
                    f"others; set it in the environment or in {user_file(environ)}"
                )
            yield os.path.abspath(path), values
    own = user_file(environ)
    if own and (values := _read_in_time(own, ())):
        yield own, values


def _read_in_time(path: str, section: tuple[str, ...]) -> dict[str, str]:
    """The values of a file; none if its filesystem hangs, so that commands answer all the same."""

    def read() -> dict[str, str] | None:
        return _read(path, section) if os.path.isfile(path) else {}

    values = within(DISK_SECONDS, read, None, path=path)
    if values is None:
        note(f"warmwatch: {path} is not used: its file system does not answer")
    return values or {}


def user_file(environ: Mapping[str, str]) -> str:
    """The user's own file; empty where there is no home directory."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):  # the XDG specification: ignore a relative path
        home = environ.get("HOME", "")
        folder = os.path.join(home, ".config") if home.startswith("/") else ""
    return os.path.join(folder, "warmwatch", _FILE) if folder else ""


def _read(path: str, section: tuple[str, ...]) -> dict[str, str]:
    try:
        text = read_text(path, _LONGEST)
        found: Any = _parsed(text) if all(name in text for name in section) else {}
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {why}") from None
    for name in section:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise UsageError(f"{path}: {'.'.join(section)} is not a table")
    if complaints := unknown_variables({**found}):
        raise UsageError(f"{path}: {complaints[0]}")
    if others := sorted(found.keys() - settable().keys()):
        raise UsageError(
            f"{path}: {others[0]} is not a setting of the monitor; "
            "set what the training reads in its environment"
        )
    return {name: _text(path, name, value) for name, value in found.items()}


def settable() -> dict[str, str]:
    """Name and default of what files can set, the settings of the monitor."""
    return {"WARMWATCH_DIR": DEFAULTS["WARMWATCH_DIR"], **defaults(Monitor)}


def _parsed(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _text(path: str, name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    try:
        text = str(value) if isinstance(value, str | int | float) else None
    except ValueError:  # a number with thousands of digits
        text = None
    if text is None or "\0" in text:  # the environment holds no null character
        raise UsageError(f"{path}: {name} is neither a text nor a number nor true or false")
    return text
