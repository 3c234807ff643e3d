"""``warmwatch wait``: blocks until warm-up has ended, and says on the way how far it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from enum import Enum

import click
from rich.console import Console

from warmwatch.verdict import ENDED
from warmwatch_monitor.cli import options
from warmwatch_monitor.cli.answers import Answer, asker, settings_from
from warmwatch_monitor.errors import UnknownRunError, UsageError

_PAUSE_SECONDS = 0.25
_ENDED = frozenset(state.value for state in ENDED)


class Outcome(Enum):
    """How a wait ends; the value is the exit code."""

    WARM = 0
    ENDED = 4
    TIMEOUT = 124


@click.command()
@click.argument("run", required=False)
@click.option("--until", type=click.Choice(["warm"]), default="warm", help="What to wait for.")
@click.option("--timeout", metavar="S", help="Give up after S seconds; without it, never.")
@options.address
@options.directory
@click.pass_context
def wait(
    ctx: click.Context,
    run: str | None,
    until: str,  # noqa: ARG001 - one choice today; click has checked it
    timeout: str | None,
    address: str | None,
    dir: str | None,
) -> None:
    """Block until RUN (or every living run) is warm; also for a run that has not begun yet.

    Runs that had ended before the wait began are passed over, unless RUN names one.
    Exit code: 0 warm; 124 at the timeout; 4 where the run ended before it was warm.
    """
    patience = _patience(timeout)
    ask = asker(settings_from(address=address, dir=dir), run, direct=dir is not None)
    with _progress() as tell:
        outcome, last = _wait(ask, run, patience, tell)
    words = {
        Outcome.WARM: last,
        Outcome.ENDED: f"{last} (before it was warm)",
        Outcome.TIMEOUT: f"not warm after {timeout} s: {last}",
    }
    click.echo(words[outcome], err=outcome is not Outcome.WARM)
    ctx.exit(outcome.value)


def _patience(text: str | None) -> float:
    try:
        seconds = float(text) if text is not None else float("inf")
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise UsageError(f"--timeout: {text!r} is not a number of seconds")
    return seconds


def _wait(
    ask: Callable[[], Answer], run: str | None, patience: float, tell: Callable[[str, str], None]
) -> tuple[Outcome, str]:
    """Ask until it is settled; the outcome and the last sentence."""
    deadline = time.monotonic() + patience
    lived: set[str] = set() if run is None else {run}
    while True:
        try:
            answer = ask()
        except UnknownRunError as error:
            outcome, state, summary = None, "unknown", f"{error}; waiting for it"
        else:
            outcome, state, summary = _settle(answer, lived)
        if outcome is not None:
            return outcome, summary
        tell(state, summary)
        if time.monotonic() >= deadline:
            return Outcome.TIMEOUT, summary
        time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))


def _settle(answer: Answer, lived: set[str]) -> tuple[Outcome | None, str, str]:
    """What an answer means to a waiter who has seen the runs in ``lived`` alive, or named one."""
    if answer["warm"]:
        return Outcome.WARM, "warm", answer["summary"]
    living = [run for run in answer["runs"] if run["state"] not in _ENDED]
    ended = [run for run in answer["runs"] if run["run"] in lived and run not in living]
    lived.update(run["run"] for run in living)
    if ended and not living:
        was_warm = all(_was_warm(run) for run in ended)
        summary = "; ".join(run["summary"] for run in ended)
        return (Outcome.WARM if was_warm else Outcome.ENDED), "ended", summary
    state = " ".join(f"{run['run']}={run['state']}" for run in living)
    return None, state, answer["summary"] if living else "no run lives; waiting for one"


def _was_warm(run: Answer) -> bool:
    """It finished by itself and had been warm, between two looks perhaps."""
    return run["state"] == "finished" and all(r["warmup"]["ended"] for r in run["ranks"])


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """A line that changes on a terminal; elsewhere a line whenever the state changes."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("waiting") as line:
            yield lambda _state, summary: line.update(summary)
        return
    told: list[str] = []

    def tell(state: str, summary: str) -> None:
        if told[-1:] != [state]:
            told.append(state)
            click.echo(summary, err=True)

    yield tell
