"""``warmwatch config``: each setting of the monitor, its value and where it comes from."""

from __future__ import annotations

import os

import click
from msgspec import Struct

from warmwatch.shared.variables import unknown_variables
from warmwatch_monitor.config_files import origins, settable
from warmwatch_monitor.output.console import as_json, note, say
from warmwatch_monitor.settings import load, price_per_gpu_hour


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


@click.command()
@click.option("--json", "is_json", is_flag=True, help="Print the settings as JSON.")
def config(is_json: bool) -> None:
    """Show each setting of the monitor, its value, and where the value comes from.

    Options go before the environment, the environment before files. The first files are
    warmwatch.toml and [tool.warmwatch] of pyproject.toml in the working directory, for settings
    that are safe there. Then comes warmwatch/warmwatch.toml in $XDG_CONFIG_HOME or ~/.config.

    \b
    Exit code: 0 shown; 2 a file or a value cannot be used
    """
    for complaint in unknown_variables(os.environ):
        note(f"warmwatch: {complaint}")
    load(os.environ, os.getuid(), {})
    price_per_gpu_hour(os.environ)
    settings = []
    for name, default in settable().items():
        value, origin = _value(name, default)
        settings.append(Setting(variable=name, value=value, origin=origin))
    if is_json:
        say(as_json(ConfigDocument(settings=settings)))
        return
    wide = max(len(one.variable) for one in settings)
    for one in settings:
        say(f"{one.variable:<{wide}}  {one.value}  ({one.origin})")


def _value(name: str, default: str) -> tuple[str, str]:
    if not os.environ.get(name):
        return default, "default"
    return os.environ[name], origins.get(name, "environment")
