"""``warmwatch`` without a command."""

from __future__ import annotations

import sys

import click

from warmwatch_monitor.base.errors import NoDaemonError, OutputError, WarmwatchError
from warmwatch_monitor.client.answers import answer_source, settings_from
from warmwatch_monitor.commands.status import picture
from warmwatch_monitor.output.console import draw, is_redrawn, note, plain, say
from warmwatch_monitor.status.goals import lives

_WITH_PAGE = ("warmwatch run --serve -- python train.py", "start a training with a live page")
_DOCTOR = ("warmwatch doctor", "find out why a training does not show up")
_SUGGESTED: tuple[tuple[str, str], ...] = (
    ("warmwatch runs", "list earlier runs"),
    _WITH_PAGE,
    ("warmwatch demo", "watch a small model compile; no GPU needed"),
    _DOCTOR,
)
_SUGGESTED_WITHOUT_DAEMON = (
    ("warmwatch serve", "start that daemon, on its machine"),
    _WITH_PAGE,
    _DOCTOR,
)


def overview(ctx: click.Context) -> None:
    """The live view on a terminal; elsewhere the answer. Suggests commands if nothing runs.

    No answer is a note, not an error.
    """
    formatter = ctx.make_formatter()
    answer, suggested = None, _SUGGESTED
    try:
        answer = answer_source(None)()
        if any(map(lives, answer["runs"])) and is_redrawn() and sys.stdin.isatty():
            ctx.invoke(ctx.command.get_command(ctx, "top"))  # type: ignore[attr-defined]
            return
        draw(picture(answer, ended=False))
        formatter.write("")  # an empty line between the answer and the commands
    except OutputError:
        raise
    except NoDaemonError:  # only where an address is set: otherwise the records are read
        say(f"no daemon answers at {settings_from().address}, which WARMWATCH_ADDRESS names\n")
        suggested = _SUGGESTED_WITHOUT_DAEMON
    except WarmwatchError as error:
        note(f"warmwatch: {plain(str(error))}")
    if answer is None or not any(map(lives, answer["runs"])):
        with formatter.indentation():
            formatter.write_dl(suggested)
    else:
        ctx.command.format_commands(ctx, formatter)  # type: ignore[attr-defined]
    say(formatter.getvalue() + "\nwarmwatch --help lists the commands.")
