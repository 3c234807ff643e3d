"""The command line: one thin module for each command, listed here.

An error of ours becomes one line on stderr and its own exit code, here and nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from warmwatch import __version__
from warmwatch_monitor.errors import WarmwatchError

# command -> the module that holds it under its own name; in the order of --help
COMMANDS = {
    "serve": "warmwatch_monitor.cli.serve",
    "status": "warmwatch_monitor.cli.status",
    "wait": "warmwatch_monitor.cli.wait",
    "doctor": "warmwatch_monitor.cli.doctor",
    "replay": "warmwatch_monitor.cli.replay",
    "demo": "warmwatch_monitor.cli.demo",
}


class _Commands(click.Group):
    """Loads a command when it is asked for: ``status`` pays for no web framework."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WarmwatchError as error:
            click.echo(f"warmwatch: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="warmwatch")
def cli() -> None:
    """Is torch.compile still at work, or is this the real speed?"""
