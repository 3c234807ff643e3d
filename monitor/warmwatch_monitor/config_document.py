"""The document of ``warmwatch config --json``. No other command loads it."""

from __future__ import annotations

from msgspec import Struct


class Setting(Struct, frozen=True, kw_only=True):
    """One setting of the monitor."""

    variable: str
    """Name of the variable, and of the key in a file."""
    value: str
    """Its value; the default in words if it is not set."""
    origin: str
    """`environment`, `default`, or the path of the file that sets it."""


class ConfigDocument(Struct, frozen=True, kw_only=True):
    """The settings of `warmwatch config --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    settings: list[Setting]
    """Every setting of the monitor."""
