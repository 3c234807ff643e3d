"""The command line: loads commands by name. An error becomes one line and an exit code here."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click

from warmwatch import __version__
from warmwatch_monitor.base.errors import OutputError, WarmwatchError, nearest
from warmwatch_monitor.commands import COMMANDS, EXIT_CODES, GROUPS
from warmwatch_monitor.output.console import (
    note,
    plain,
    reader_left,
    say,
    spilled,
)

_INTERRUPTED = 130  # as a shell has it
_NAMES_A_RUN = ("--run", "--name")  # in the commands that start one


def _show_help(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_OPTION = click.Option(
    ("_help", "-h", "--help"),
    is_flag=True,
    expose_value=False,
    is_eager=True,
    help="Show this message and exit.",
    callback=_show_help,
)


def _help_option(ctx: click.Context) -> click.Option:  # noqa: ARG001 - click's
    """In place of click's, which looks for a translation of its text at every start."""
    return _HELP_OPTION


def _command(name: str) -> click.Command:
    command: click.Command = getattr(import_module(COMMANDS[name][0], "warmwatch_monitor"), name)
    command.context_settings.setdefault("help_option_names", _HELP_OPTION.opts)
    command.get_help_option = _help_option  # type: ignore[method-assign]
    return command


class _Commands(click.Group):
    """Loads a command on first use: ``status`` imports no web framework."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return _command(cmd_name)

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return _help_option(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = nearest(name, COMMANDS)
            hint = f"did you mean {near}?" if near else f"commands: {', '.join(COMMANDS)}"
            ctx.fail(f"No such command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        _list(formatter)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        formatter.write_paragraph()
        cases = (f"{', '.join(map(str, codes))} {text}" for codes, text in EXIT_CODES.items())
        formatter.write_text(f"Exit code: {'; '.join(cases)}")

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if "_WARMWATCH_COMPLETE" in os.environ:
            import_module("warmwatch_monitor.client.shells")  # registers them
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # what click itself prints: --help
            if error.errno != errno.ENOSPC:
                raise
            spilled(sys.stdout)
            note(f"warmwatch: its output cannot be written ({error.strerror})")
            sys.exit(OutputError.exit_code)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _help_may_be_unread():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _help_may_be_unread():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            command = error.ctx.command if error.ctx else self
            takes = {each.name for each in command.params if isinstance(each, click.Argument)}
            if error.option_name in _NAMES_A_RUN and takes & {"run", "runs"}:
                # click suggests options of other meanings
                hint = f"Give the name alone: warmwatch {command.name} NAME."
                message = f"No such option {error.option_name!r}. {hint}"
                raise click.UsageError(message, error.ctx) from None
            raise
        except WarmwatchError as error:
            note(f"warmwatch: {plain(str(error))}")
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:  # click would print "Aborted!" and report a failure
            note("")
            ctx.exit(_INTERRUPTED)


@contextlib.contextmanager
def _help_may_be_unread() -> Iterator[None]:
    """End quietly where the pipe of ``--help`` is closed: click prints it and would fail."""
    try:
        yield
    except BrokenPipeError:
        if not reader_left():  # another pipe's
            raise
        spilled(sys.stdout)
        raise click.exceptions.Exit(0) from None


def _list(formatter: click.HelpFormatter) -> None:
    """The commands in their groups, without importing them."""
    width = max(map(len, COMMANDS))
    for title, group in GROUPS.items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), text) for name, (_, text) in group.items()])


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        try:
            say(f"warmwatch, version {__version__}")
        except OutputError as error:  # no command is invoked yet
            note(f"warmwatch: {error}")
            ctx.exit(error.exit_code)
        ctx.exit()


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": _HELP_OPTION.opts},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Is torch.compile still compiling, or is this the real speed?

    Without a command: open the live view if a training runs, otherwise suggest what to do.
    """
    if ctx.invoked_subcommand is None:
        from warmwatch_monitor.commands.overview import overview  # without a command

        overview(ctx)
