"""The list of commands. Errors of ours become one line and an exit code here.

An error of ours becomes one line on stderr and its own exit code, here and nowhere else.
"""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import Any

import click

from warmwatch_monitor.errors import OutputError, WarmwatchError
from warmwatch_monitor.output.console import draw, note, plain, say, spilled

# command -> the module that holds it under its own name, and what --help says of it, in its order
COMMANDS = {
    "serve": ("warmwatch_monitor.server.command", "The daemon: publish /status and /metrics."),
    "status": (
        "warmwatch_monitor.terminal.status",
        "Is it still compiling? A sentence and a table.",
    ),
    "top": (
        "warmwatch_monitor.top.command",
        "Runs and ranks on a live screen, with plots and keys.",
    ),
    "wait": ("warmwatch_monitor.wait.command", "Block until a run is warm, or in another state."),
    "run": (
        "warmwatch_monitor.run.command",
        "Run a command with the agent attached, no code edited.",
    ),
    "report": ("warmwatch_monitor.report.command", "Where the time of a run went, on one page."),
    "compare": ("warmwatch_monitor.compare.command", "Runs side by side, and their break-even."),
    "export": ("warmwatch_monitor.export.command", "A run as a Perfetto trace, CSV or Parquet."),
    "runs": ("warmwatch_monitor.terminal.runs", "The runs that are remembered, newest first."),
    "check": ("warmwatch_monitor.check.command", "A gate for CI: fail where CMD compiles more."),
    "modes": (
        "warmwatch_monitor.modes.command",
        "CMD in each mode of torch.compile, side by side.",
    ),
    "stacks": (
        "warmwatch_monitor.stacks.command",
        "What a rank that compiles is in the middle of.",
    ),
    "doctor": ("warmwatch_monitor.doctor.command", "Check the installation and say what to do."),
    "demo": ("warmwatch_monitor.demo.command", "Watch a small model compile. No GPU is needed."),
}

_EPILOG = """
\b
Exit codes: 0 all is well, or what was waited for is reached
            1 something failed, doctor found something to do, more is
              compiled than by the baseline      (check), or a mode was
              not measured                       (modes)
            2 wrong usage, or the monitor's libraries are missing
            3 a run still compiles or warms up       (status)
            4 a run is stalled, failed or lost,      (status, wait)
              or needs a person: it may hang
            5 no run found                           (status, check)
            6 who was asked does not answer, or the daemon cannot listen
            124 the timeout came first               (wait)
            130 Ctrl-C ended it
            run ends with the exit code of its command
"""

_INTERRUPTED = 130  # as a shell has it


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
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        command.context_settings.setdefault("help_option_names", ["-h", "--help"])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib  # a slip of the pen alone has the time

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
            ctx.fail(f"No such command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        _list(formatter)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # what click itself prints: --help
            if error.errno != errno.ENOSPC:
                raise
            spilled(sys.stdout)
            note(f"warmwatch: its output cannot be written ({error.strerror})")
            sys.exit(OutputError.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WarmwatchError as error:
            note(f"warmwatch: {plain(str(error))}")
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:  # click would say "Aborted!", and that something has failed
            note("")
            ctx.exit(_INTERRUPTED)


def _list(formatter: click.HelpFormatter) -> None:
    """The commands, from the table: none is loaded to be listed."""
    with formatter.section("Commands"):
        formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from warmwatch import __version__

        try:
            say(f"warmwatch, version {__version__}")
        except OutputError as error:  # no command is invoked yet
            note(f"warmwatch: {error}")
            ctx.exit(error.exit_code)
        ctx.exit()


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
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
    """Is torch.compile still at work, or is this the real speed?

    Without a command: what runs now.
    """
    if ctx.invoked_subcommand is None:
        _overview(ctx)


def _overview(ctx: click.Context) -> None:
    """The answer as it is now, and the commands; what cannot be asked is said and no error."""
    from warmwatch_monitor.client.answers import asker
    from warmwatch_monitor.terminal.status import picture

    formatter = ctx.make_formatter()
    try:
        draw(picture(asker(None)()))
        formatter.write("")  # what there is before them gets an empty line between
    except OutputError:
        raise
    except WarmwatchError as error:
        note(f"warmwatch: {plain(str(error))}")
    _list(formatter)
    say(formatter.getvalue() + "\nwarmwatch COMMAND --help says more of each.")
