"""``warmwatch run -- CMD``: a command with the agent attached, no code edited."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note
from warmwatch_monitor.run.launched import Launched, check_name, environment, startable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PAUSE_SECONDS = 0.5


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--run", "--name", "name", metavar="NAME", help="The run's name.")
@click.option("--watch", is_flag=True, help="Show the live answer in the terminal's last line.")
@click.option("--report", is_flag=True, help="Print a summary of its runs on exit.")
@click.option("--serve", is_flag=True, help="Start a daemon with CMD and print the page's link.")
@click.option("--json", type=options.FILE, help="Write link, exit code and runs as JSON.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=options.FILE, required=True)
def run(
    name: str | None,
    watch: bool,
    report: bool,
    serve: bool,
    json: str | None,
    command: tuple[str, ...],
) -> None:
    """Run CMD and attach the agent to every training that it starts, without editing code.

    CMD is what you would type: python train.py, python -m pkg, torchrun, accelerate launch,
    deepspeed, srun, a script. Warmwatch need not be installed in the Python environments that CMD
    uses. A process shows up at its first step or compilation; other processes never do.

    Without --watch, --report, --serve and --json, this process becomes CMD. With them, it waits for
    CMD, forwards signals and exits as CMD does. --serve ends its daemon with CMD. A `warmwatch
    serve` of these records is used and stays if it answers at WARMWATCH_ADDRESS (127.0.0.1:10464 by
    default); at another address it is not found. --watch shows nothing if neither stderr nor stdout
    is a terminal. --report prints to stdout if that is a terminal, and otherwise to stderr. --json
    writes FILE when CMD has ended, and with --serve also when the page is ready; - is stdout.

    \b
    Exit code: CMD's exit code; ended by the same signal if one killed CMD
               127 CMD was not found; 126 CMD cannot be run
    """
    from warmwatch_monitor.output.files import place_of
    from warmwatch_monitor.run.process import become, end_as

    check_name(name)
    with startable(command):
        if not (watch or report or serve or json is not None):
            become(command, environment(os.environ, run=name))
        if report:
            from warmwatch_monitor.settings import price_per_gpu_hour

            price_per_gpu_hour(os.environ)  # report an invalid price before CMD starts
        place, launch = place_of("--json", json), uuid.uuid4().hex
        environ = environment(os.environ, run=name, started_by=launch)
        with _served(launch) if serve else nullcontext() as page:
            if place is not None and page is not None:
                from warmwatch_monitor.run.outcome import write_link

                write_link(place, command, page)
            ours = Launched(launch)
            status = _attend(
                command, environ, ours, watch=watch, report=report, page=page, json=place
            )
        end_as(status)


@contextmanager
def _served(launch: str) -> Iterator[str]:
    """A daemon within this block; prints the link on stderr.

    Uses the daemon that answers already, unless it cannot know these records or ends with another
    command.
    """
    from warmwatch_monitor.client.answers import settings_from
    from warmwatch_monitor.client.daemon import daemon_of, query_daemon
    from warmwatch_monitor.client.started import ANY_PORT, ends_with_a_command, started_daemon
    from warmwatch_monitor.errors import DaemonError

    settings = settings_from()
    try:
        answer = query_daemon(daemon_of(settings))
    except DaemonError:
        answer = None
    has_records = answer is not None and answer.get("directories") == list(settings.directories)
    if has_records and not ends_with_a_command(settings.address):
        note(f"warmwatch: live page: {settings.address.url}/ (of the daemon that already serves)")
        yield f"{settings.address.url}/"
        return
    with ExitStack() as stack:
        wanted = str(settings.address) if answer is None else ANY_PORT
        try:
            address = stack.enter_context(started_daemon(os.environ, wanted, awaits=launch))
        except DaemonError:  # the port is taken
            address = stack.enter_context(started_daemon(os.environ, awaits=launch))
        note(f"warmwatch: live page: {address.url}/")
        yield f"{address.url}/"


def _attend(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    ours: Launched,
    *,
    watch: bool,
    report: bool,
    page: str | None,
    json: Path | None,
) -> int:
    """Follow the command to its end; its wait status."""
    from warmwatch_monitor.run.last_line import LastLine, terminal
    from warmwatch_monitor.run.process import supervise

    descriptor = terminal((2, 1)) if watch else None
    line = LastLine(descriptor) if descriptor is not None else None

    def poll() -> None:
        if line is not None:
            line.show(ours.sentence())

    def leave() -> None:
        if line is not None:
            line.leave()

    began = time.monotonic()
    try:
        status = supervise(command, environ, poll=poll, stopped=leave, seconds=_PAUSE_SECONDS)
    finally:
        leave()
    seconds = time.monotonic() - began
    seen = ours.ended() if report or json else ours.snapshot()
    if report:
        from warmwatch_monitor.run.outcome import print_summary

        print_summary(seen, status)
    if json is not None:
        from warmwatch_monitor.run.outcome import write_outcome

        write_outcome(json, command, page, seconds=seconds, status=status, snapshot=seen)
    ours.write_history()
    return status
