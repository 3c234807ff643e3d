"""Options that several commands share. Their values are checked in ``config``, not by click."""

from __future__ import annotations

import click

from warmwatch_monitor.config import DEFAULT_ADDRESS

address = click.option(
    "--address", metavar="HOST:PORT", help=f"The daemon's address.  [{DEFAULT_ADDRESS}]"
)
directory = click.option(
    "--dir", "dir", metavar="DIR", help="Read the records in this directory and no other."
)
prometheus = click.option(
    "--prometheus",
    metavar="URL",
    help="Ask this Prometheus instead, for runs over any number of hosts.",
)
