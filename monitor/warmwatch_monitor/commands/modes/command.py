"""``warmwatch modes -- CMD``: the user's script in each mode of ``torch.compile``, side by
side.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.client.completion import modes_of_torch
from warmwatch_monitor.commands.compare.comparison import EAGER, step_of
from warmwatch_monitor.commands.launch import check_name, fresh_caches, startable
from warmwatch_monitor.commands.modes.child_process import Stops, counted_signals
from warmwatch_monitor.commands.modes.drift import drift
from warmwatch_monitor.commands.modes.one_mode import (
    Expected,
    Plan,
    Progress,
    apart,
    attempt,
    expected,
)
from warmwatch_monitor.commands.modes.table import NAMES, USUAL, Modes, Tried
from warmwatch_monitor.commands.modes.table import modes as table_of
from warmwatch_monitor.commands.modes.wording import page
from warmwatch_monitor.commands.report.command import show
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, plain, say
from warmwatch_monitor.output.json_text import as_json

FAILED, DRIFTED = 1, 3
_SHOWS_OUTPUT = frozenset({"failed", "nothing"})
_TAIL, _LONGEST = 4096, 300
_MOST_ROUNDS = 9
# each sets a part of a mode for every call
_IMPOSING = (
    "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
)


class _Request(NamedTuple):
    """The options, checked."""

    command: tuple[str, ...]
    modes: tuple[str, ...]
    name: str
    output: Path | None  # where files go; None: to stderr
    keep_caches: bool
    rounds: int | None  # None: 2, or 3 if the runs of a mode differ
    steps: int | None
    training_steps: int | None
    timeout: float
    budget: float | None  # seconds for all modes
    max_drift: float | None

    @property
    def compares_losses(self) -> bool:
        """Whether there is a mode to compare with eager."""
        return EAGER in self.modes and len(self.modes) > 1


def _duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``10m`` or ``1.5h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a duration, such as 90s, 10m or 1h")
    return float(match[1]) * {"m": 60, "h": 3600}.get(match[2], 1)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--mode",
    "names",
    metavar="NAME",
    multiple=True,
    shell_complete=modes_of_torch,
    help="Measure this mode; repeatable.",
)
@click.option("--regional", is_flag=True, help="Also compile each repeated block separately.")
@click.option(
    "--rounds",
    metavar="N",
    type=options.Whole(min=1, max=_MOST_ROUNDS),
    help="Run each mode N times, in turn.  [2; 3 if the runs of a mode differ by over 2 %]",
)
@click.option(
    "--steps",
    metavar="N",
    type=options.Whole(min=1),
    help="End each run after N steps.  [when it is warm and steady]",
)
@click.option(
    "--training-steps",
    metavar="N",
    type=options.Whole(min=1),
    help="Estimate how long a training of N steps takes.",
)
@click.option(
    "--caches",
    type=click.Choice(["cold", "keep"]),
    default="cold",
    help="keep: leave the compile caches as they are.  [empty ones for each mode]",
)
@click.option(
    "--timeout",
    metavar="S",
    type=options.Number(min=1),
    default=3600.0,
    help="End a run after S seconds.  [3600]",
)
@click.option(
    "--budget",
    metavar="TIME",
    type=_duration,
    help="Skip modes that do not fit in TIME, such as 10m.  [no limit]",
)
@click.option(
    "--max-drift",
    metavar="X",
    type=options.Number(min=0, min_open=True),
    help="Exit with 3 if a mode's loss differs from eager's by more than X of its mean magnitude.",
)
@click.option("--run", "name", metavar="NAME", help="Name the runs NAME/MODE.  [the script]")
@click.option(
    "--output", type=options.DIR, help="Write the script's output here, one file per mode."
)
@click.option("--verbose", is_flag=True, help="Print the script's output on stderr.")
@click.option("--json", "is_json", is_flag=True, help="Print the table as JSON.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, for a pull request.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=options.FILE, required=True)
def modes(
    names: tuple[str, ...],
    regional: bool,
    caches: str,
    name: str | None,
    output: str | None,
    verbose: bool,
    is_json: bool,
    markdown: bool,
    command: tuple[str, ...],
    **limits: Any,
) -> None:
    """Run CMD once in each mode of torch.compile and print costs and gains.

    CMD starts a training: python train.py, torchrun, a script. It is not edited. Each torch.compile
    call with Inductor gets the mode instead of its own mode and options; in eager, nothing
    compiles. Each run ends as by Ctrl-C when it is warm and its step is known to 1 %, or after 30 s
    of clean steps. A script that saves at its end does so in each mode. Ctrl-C stops and prints the
    results so far.

    Modes: eager, default, reduce-overhead, max-autotune (the default four),
    max-autotune-no-cudagraphs, dynamic (default with dynamic=True), static (dynamic=False) and
    regional. Each runs twice or more, in turn: a mode counts as faster if the difference is larger
    than that between the runs of one mode.

    The losses are compared with eager's at the same steps: set the same seed in every run.

    \b
    Exit code: 0 measured; 1 a mode failed; 3 a loss drifts (--max-drift); of CMD: 126, 127, 130
    """
    check_name(name)
    if is_json and markdown:
        raise UsageError("give either --json or --markdown, not both")
    if verbose and output is not None:
        raise UsageError("give either --verbose or --output, not both")
    modes = _names(names, regional=regional, compared=limits["max_drift"] is not None)
    name = name or os.environ.get("WARMWATCH_RUN", "").strip() or script_name(command)
    check_name(name, room=max(len(f"/{mode}") for mode in modes))
    request = _Request(
        command=command,
        modes=modes,
        name=name,
        output=None if verbose else _folder(output),
        keep_caches=caches == "keep",
        **limits,
    )
    with counted_signals() as stops, ExitStack() as folders:
        rounds = Rounds(request, stops, folders)
        rounds.run()
    made = _table(rounds, request)
    _show(made, request.output, is_json=is_json, markdown=markdown)
    raise SystemExit(128 + stops.last if stops.last else _exit_code(made))


def _table(rounds: Rounds, request: _Request) -> Modes:
    measured = {tried.mode for tried in rounds.first}
    empty = Modes(
        training_steps=request.training_steps,
        caches="kept" if request.keep_caches else "cold",
        imposed=tuple(name for name in _IMPOSING if os.environ.get(name) == "1"),
        untried=tuple(mode for mode in request.modes if mode not in measured),
        over_budget=tuple(rounds.over_budget),
        budget_seconds=request.budget,
        max_drift=request.max_drift,
    )
    return table_of(rounds.first, rounds.later, empty)


def _exit_code(made: Modes) -> int:
    rows = [row for row in made.rows if row.ended_by != "budget" or row.outcome == "measured"]
    if not rows or any(row.outcome != "measured" for row in rows):
        return FAILED
    compared = [row for row in rows if row.mode != EAGER]
    if any(row.max_drift_exceeded for row in compared):
        return DRIFTED
    unknown = made.max_drift is not None and any(row.drift is None for row in compared)
    return FAILED if unknown else 0


def script_name(command: Sequence[str]) -> str:
    """What a run of ``command`` is called: its script or module, else its program."""
    parts = list(command)
    scripts = [Path(word).stem for word in parts if word.endswith((".py", ".sh"))]
    modules = [after for word, after in pairwise(parts) if word == "-m"]
    trained = [module for module in modules if not module.startswith("torch.distributed.")]
    return next(iter([*scripts, *(name.rpartition(".")[2] for name in trained)]), None) or (
        Path(parts[0]).name or "run"
    )


def _last_lines(output: str | None, most: int = 8) -> list[str]:
    """What the script printed last, of a file that may be long."""
    if output is None:
        return []
    try:
        with Path(output).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").split("\n")
    except OSError:
        return []
    return [line.rstrip()[:_LONGEST] for line in lines if line.strip()][-most:]


def _names(requested: tuple[str, ...], *, regional: bool, compared: bool) -> tuple[str, ...]:
    """The modes to run. ``compared``: with a limit of the drift from eager. Raises UsageError."""
    for name in requested:
        if name not in NAMES:
            raise UsageError(f"--mode: no mode {name!r}. Modes: {', '.join(NAMES)}")
    chosen = dict.fromkeys((*(requested or USUAL), *(["regional"] if regional else [])))
    if compared and (EAGER not in chosen or len(chosen) < 2):
        raise UsageError("--max-drift compares modes with eager: add --mode eager and another one")
    return tuple(chosen)


def _folder(output: str | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="warmwatch-modes-"))
    place = Path(output)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be made: {error.strerror}") from None
    return place


class Rounds:
    """Runs the modes one after another, and again in turn.

    In turn, so that a machine that gets slower does not favour the first ones.

    Attributes:
        first: the run of each mode in the first round. later: the runs of later rounds.
        over_budget: modes that were not run, because they do not fit in the budget.
    """

    def __init__(self, request: _Request, stops: Stops, folders: ExitStack) -> None:
        self._request, self._stops, self._folders = request, stops, folders
        self._deadline = time.monotonic() + (math.inf if request.budget is None else request.budget)
        self._caches: dict[str, Mapping[str, str]] = {}
        self.first: list[Tried] = []
        self.later: list[Tried] = []
        self.over_budget: list[str] = []

    def run(self) -> None:
        request = self._request
        for number, mode in enumerate(request.modes, 1):
            takes = expected(mode, self.first)
            if self._exceeds(takes):
                note(f"warmwatch: {mode} is skipped: it does not fit in what is left of --budget")
                self.over_budget.append(mode)
                continue
            caches = self._folders.enter_context(fresh_caches(keep=request.keep_caches))
            self._caches[mode] = caches.environ
            title = f"mode {number} of {len(request.modes)}, {mode}"
            self.first.append(self.run_mode(mode, title, takes))
            if self._stops.count:
                return
            if number == 1:
                leave_broken(self.first[0], request.command)
        for tried, round in self._to_repeat():
            if self._stops.count:
                return
            mode, takes = tried.mode, Expected(tried.seconds, at_least=False)
            if self._exceeds(takes):
                note(f"warmwatch: no round {round} of {mode}: it does not fit in --budget")
                continue
            # what it took with empty caches does not predict it
            shown = takes if mode == EAGER else None
            self.later.append(self.run_mode(mode, f"round {round}, {mode}", shown, round))

    def _to_repeat(self) -> Iterator[tuple[Tried, int]]:
        """The first run of each measured mode, and the round to run it in."""
        measured = [item for item in self.first if item.summary and step_of(item.summary)]
        if len(measured) < 2:
            return  # nothing to compare
        rounds = self._request.rounds
        for round in range(2, (rounds or 3) + 1):
            runs = (*self.first, *self.later)
            if round == 3 and rounds is None and not any(apart(m.mode, runs) for m in measured):
                return
            yield from ((item, round) for item in measured)

    def _exceeds(self, takes: Expected | None) -> bool:
        """Whether a run would end after the deadline."""
        return time.monotonic() + (takes.seconds if takes else 0.0) > self._deadline

    def run_mode(self, mode: str, title: str, takes: Expected | None, round: int = 1) -> Tried:
        request, left = self._request, max(1.0, self._deadline - time.monotonic())
        file = f"{mode}.log" if round == 1 else f"{mode}-{round}.log"
        compares = request.compares_losses and round <= (2 if mode == EAGER else 1)
        plan = Plan(
            mode=mode,
            name=f"{request.name}/{mode}",
            timeout=min(request.timeout, left),
            over="budget" if left < request.timeout else "timeout",
            steps=request.steps,
            least=_last_step_compared(self.first) if compares and round > 1 else 0,
            place=request.output and request.output / file,
            # guard checks are measured there too, also where no loss is compared
            losses=compares or (round == 1 and mode != EAGER),
            round=round,
        )
        progress = Progress(title, sys.stderr, str(takes or ""))
        with startable(request.command):
            return attempt(request.command, plan, self._caches.get(mode, {}), self._stops, progress)


def leave_broken(first: Tried, command: Sequence[str]) -> None:
    """Exit if the script failed in eager before it made a step: it would in every mode."""
    ranks = first.summary.ranks if first.summary else ()
    if first.mode != EAGER or not first.code or any(rank.answer["steps"] for rank in ranks):
        return
    how = f"signal {-first.code}" if first.code < 0 else f"exit code {first.code}"
    note(f"warmwatch: {' '.join(command)} failed in {EAGER} before a step ({how}):")
    for line in _last_lines(first.output):
        note(f"  {line}")
    where = f"; all that it printed is in {first.output}" if first.output else ""
    note(f"warmwatch: no other mode was tried{where}")
    raise SystemExit(FAILED)


def _last_step_compared(tried: Sequence[Tried]) -> int:
    """The last step at which a mode's loss can be compared with eager's."""
    eager = next((item.losses for item in tried if item.mode == EAGER), {})
    drifts = [drift(item.losses, eager) for item in tried if item.mode != EAGER]
    return max((item.last_step for item in drifts if item), default=0)


def _show(made: Modes, output: Path | None, *, is_json: bool, markdown: bool) -> None:
    """Print the table, and on stderr the last line of each mode that failed."""
    shown = plain(made)
    if is_json:
        say(as_json(shown))
    else:
        show(page(shown), markdown=markdown)
    for row in made.rows:
        if row.outcome in _SHOWS_OUTPUT and (printed := _last_lines(row.output, 1)):
            note(f"warmwatch: {row.mode} ended with: {printed[0].strip()}")
    if output is not None:
        note(f"warmwatch: the script's output is in {output}")
