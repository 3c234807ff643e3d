"""Options that several commands share. ``settings`` checks their values, not click."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from warmwatch_monitor.base.settings import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Path(click.types.StringParamType):
    """A path as it is typed, which a shell completes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # only a completion needs it

        return [CompletionItem(incomplete, type=self.name)]


class Number(click.FloatRange):
    """A number in a range. NaN is none: no comparison would refuse it."""

    name = "number"  # of messages; click's is "float range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number in a range."""

    name = "whole number"  # of messages


FILE, DIR = _Path("file"), _Path("dir")  # FILE also of CMD: a script, and files that it reads

address = click.option(
    "--address",
    metavar="HOST:PORT",
    help=f"The daemon's address; https://HOST:PORT over TLS.  [{DEFAULT_ADDRESS}]",
)
directory = click.option("--dir", "dir", type=DIR, help="Read the records in this directory only.")
prometheus = click.option(
    "--prometheus",
    metavar="URL",
    help="Query this Prometheus server, for runs on any number of hosts.",
)

_ACCESS = (
    click.option(
        "--token-file",
        type=FILE,
        help="Send the bearer token in this file. Also: --user-file, --ca, --cert, --key.",
    ),
    # docs/explanation/security.md explains them: few users need them
    *(
        click.option(name, type=FILE, hidden=True)
        for name in ("--user-file", "--ca", "--cert", "--key")
    ),
)


def access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options with credentials, for a daemon or a Prometheus server that requires them."""
    for option in reversed(_ACCESS):
        command = option(command)
    return command
