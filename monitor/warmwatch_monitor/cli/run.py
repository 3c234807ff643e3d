"""``warmwatch run -- CMD``: a command with the agent attached, no code edited."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from warmwatch_monitor.cli.output import draw, is_terminal, note, plain
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.launch.environment import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warmwatch_monitor.cli.answers import Answer
    from warmwatch_monitor.model import Snapshot

_PAUSE_SECONDS = 0.5
_END_SECONDS = 3.0  # for the records of what has just ended to say so
_NOTHING = (
    "warmwatch: no step and no compilation was seen under this command; a Python under -I, -E or "
    "-S is not attached to, nor one older than 3.10: `import warmwatch.auto` is for those"
)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--run", "name", metavar="NAME", help="The run's name.")
@click.option("--watch", is_flag=True, help="Show the answer, live, in the terminal's last line.")
@click.option("--report", is_flag=True, help="Print the account of its runs when it has ended.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=click.UNPROCESSED, required=True)
def run(name: str | None, watch: bool, report: bool, command: tuple[str, ...]) -> None:
    """Run CMD with the agent attached to every training below it, no code edited.

    CMD is what you would type: python train.py, python -m pkg, torchrun, accelerate launch,
    deepspeed, srun, a script. Warmwatch need not be installed in the Pythons that it starts. A
    process shows up at its first step or compilation; one that does neither is left alone.

    Without --watch and --report this process becomes CMD. With them it stays beside it, passes
    signals on and ends as CMD does. --watch shows nothing where neither stderr nor stdout is a
    terminal; --report is on stdout where that is one, else on stderr.

    \b
    Exit code: CMD's own (by a signal, where one killed it)
               127 CMD was not found, 126 it cannot be run
    """
    if name is not None and not name.strip():
        raise UsageError("--run: give the run a name, or leave the option out")
    from warmwatch_monitor.launch.process import NOT_EXECUTABLE, NOT_FOUND

    try:
        _start(command, name, watch=watch, report=report)
    except FileNotFoundError:
        name = command[0] or "''"
        note(f"warmwatch: {name}: not found; give what you would type without warmwatch")
        raise SystemExit(NOT_FOUND) from None
    except OSError as error:
        note(f"warmwatch: {command[0]}: cannot be run ({error.strerror})")
        raise SystemExit(NOT_EXECUTABLE) from None


def _start(command: tuple[str, ...], name: str | None, *, watch: bool, report: bool) -> None:
    from warmwatch_monitor.launch.process import become, end_as

    if not watch and not report:
        become(command, environment(os.environ, _boot(), run=name))
    if report:
        from warmwatch_monitor.config import price_per_gpu_hour

        price_per_gpu_hour(os.environ)  # said before CMD begins, not in the place of its exit code
    launch = uuid.uuid4().hex
    environ = environment(os.environ, _boot(), run=name, started_by=launch)
    status = _attend(command, environ, _Launched(launch), watch=watch, report=report)
    end_as(status)


def _boot() -> str:
    """The folder of the ``sitecustomize`` that attaches."""
    import warmwatch._boot

    (place,) = warmwatch._boot.__path__
    return os.path.abspath(place)  # noqa: PTH100 - what pathlib takes to load, the command waits


def _attend(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    ours: _Launched,
    *,
    watch: bool,
    report: bool,
) -> int:
    """Stand beside it; how it ended."""
    from warmwatch_monitor.launch.line import LastLine, terminal
    from warmwatch_monitor.launch.process import attend

    descriptor = terminal((2, 1)) if watch else None
    line = LastLine(descriptor) if descriptor is not None else None

    def look() -> None:
        if line is not None:
            line.show(ours.sentence())

    def leave() -> None:
        if line is not None:
            line.leave()

    try:
        status = attend(command, environ, look=look, stopped=leave, seconds=_PAUSE_SECONDS)
    finally:
        leave()
    seen = ours.ended() if report else ours.look()
    if report:
        with suppress(OSError):  # nobody can read it; the exit code is CMD's all the same
            _account(seen)
    ours.remember()
    return status


def _account(snapshot: Snapshot) -> None:
    """How its runs ended and where their time went: beside the command's output, not within it."""
    if not snapshot.runs:
        note(_NOTHING)
        return
    from warmwatch_monitor.cli.accounts import accounts_in
    from warmwatch_monitor.cli.report import in_short

    said = in_short(accounts_in(snapshot))
    (draw if is_terminal() else note)(said)


class _Launched:
    """The runs of one launch, as their records tell. ``launch``: what they are known by."""

    def __init__(self, launch: str) -> None:
        from warmwatch_monitor.cli.answers import make_poller, settings_from
        from warmwatch_monitor.cli.remembering import Remembering

        settings = settings_from(observe="off")  # nothing is looked for but what we have started
        self._poller, self._seen = make_poller(settings), Remembering(settings.keeping)
        self._launch, self._began = launch, time.monotonic()

    def sentence(self) -> str:
        """How they are, in a sentence."""
        from warmwatch_monitor.export.words.wording import duration

        answer = self.answer()
        if answer["runs"]:
            return str(plain(answer["summary"]))
        return f"no step and no compilation for {duration(time.monotonic() - self._began)}"

    def ended(self) -> Snapshot:
        """How they ended, which their records may tell a moment late."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            snapshot = self.look()
            if not any(run.living for run in snapshot.runs) or time.monotonic() > deadline:
                return snapshot
            time.sleep(0.1)

    def answer(self) -> Answer:
        """What ``/status`` says, of these runs alone."""
        from warmwatch_monitor.export.answer import status

        return status(self.look())

    def look(self) -> Snapshot:
        """These runs alone, as they are now."""
        from msgspec.structs import replace

        snapshot = self._poller.poll_once()
        ours = tuple(
            run
            for run in snapshot.runs
            if any(rank.record.slot.identity.started_by == self._launch for rank in run.ranks)
        )
        seen = replace(snapshot, runs=ours)
        self._seen.take(seen)
        return seen

    def remember(self) -> None:
        """Write those that have ended into the history."""
        self._seen.write()
