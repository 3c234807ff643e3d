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
    "--dir", "dir", metavar="DIR", help="Read the records in this directory only."
)
prometheus = click.option(
    "--prometheus",
    metavar="URL",
    help="Query this Prometheus server, for runs on any number of hosts.",
)

_ACCESS = (
    click.option("--token-file", metavar="FILE", help="Send the bearer token in this file."),
    click.option("--user-file", metavar="FILE", help="Log in with the NAME:PASSWORD in this file."),
    click.option("--ca", metavar="FILE", help="CA certificates that verify the server (PEM)."),
    click.option("--cert", metavar="FILE", help="Client certificate (PEM)."),
    click.option(
        "--key", metavar="FILE", help="Key of the client certificate, if in its own file."
    ),
)


def access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options with credentials, for a daemon or a Prometheus server that requires them."""
    for option in reversed(_ACCESS):
        command = option(command)
    return command
