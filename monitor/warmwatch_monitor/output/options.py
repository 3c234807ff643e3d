"""Options that several commands share. ``settings`` checks their values, not click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from warmwatch_monitor.settings import DEFAULT_ADDRESS

address = click.option(
    "--address",
    metavar="HOST:PORT",
    help=f"The daemon's address; https://HOST:PORT over TLS.  [{DEFAULT_ADDRESS}]",
)
directory = click.option(
    "--dir", "dir", metavar="DIR", help="Read the records in this directory and no other."
)
prometheus = click.option(
    "--prometheus",
    metavar="URL",
    help="Ask this Prometheus instead, for runs over any number of hosts.",
)

_ACCESS = (
    click.option("--token-file", metavar="FILE", help="Show the bearer token in this file."),
    click.option("--user-file", metavar="FILE", help="Show the NAME:PASSWORD in this file."),
    click.option("--ca", metavar="FILE", help="Who signs the certificate of whom is asked (PEM)."),
    click.option("--cert", metavar="FILE", help="Show this certificate (PEM)."),
    click.option("--key", metavar="FILE", help="Its key, where it is in a file of its own."),
)


def access(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is shown to a daemon, or a Prometheus, that asks who is there."""
    for option in reversed(_ACCESS):
        command = option(command)
    return command
