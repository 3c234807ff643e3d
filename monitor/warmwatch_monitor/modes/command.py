"""``warmwatch modes -- CMD``: the user's script in each mode of ``torch.compile``, side by
side.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from warmwatch_monitor.client.completion import modes_of_torch
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import draw, has_colour, note, say, width
from warmwatch_monitor.run.environment import fresh_caches
from warmwatch_monitor.run.launched import check_name, startable

if TYPE_CHECKING:
    from warmwatch_monitor.modes.table import Modes, Tried

FAILED = 1
_TOLD_BY_OUTPUT = frozenset({"failed", "nothing"})
_TAIL, _LONGEST = 4096, 300
# each sets a part of a mode for every call
_IMPOSING = (
    "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
)


class _Wanted(NamedTuple):
    """What was asked for."""

    command: tuple[str, ...]
    modes: tuple[str, ...]
    steps: int | None
    timeout: float
    keep_caches: bool
    name: str
    output: Path | None  # where files go; None: to stderr


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--mode",
    "names",
    metavar="NAME",
    multiple=True,
    shell_complete=modes_of_torch,
    help="Measure this mode; repeatable.",
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=1),
    help="End each run after N steps.  [when it is warm and steady]",
)
@click.option(
    "--training-steps",
    metavar="N",
    type=click.IntRange(min=1),
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
    type=click.FloatRange(min=1),
    default=3600.0,
    help="End a run after S seconds.  [3600]",
)
@click.option("--run", "name", metavar="NAME", help="Name the runs NAME/MODE.  [the script]")
@click.option("--output", metavar="DIR", help="Write the script's output here, one file per mode.")
@click.option("--verbose", is_flag=True, help="Print the script's output on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, for a pull request.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=click.UNPROCESSED, required=True)
def modes(
    names: tuple[str, ...],
    steps: int | None,
    training_steps: int | None,
    caches: str,
    timeout: float,
    name: str | None,
    output: str | None,
    verbose: bool,
    as_json: bool,
    markdown: bool,
    command: tuple[str, ...],
) -> None:
    """Run CMD once in each mode of torch.compile and print costs and gains.

    CMD starts a training: python train.py, torchrun, a script. It is not edited. Each torch.compile
    call with Inductor gets the mode instead of its own mode and options; in eager, nothing
    compiles. The modes run one after another. Each run ends as by Ctrl-C when it is warm and its
    step is known to 1 %, or after 30 s of clean steps. A script that saves at its end does so in
    each mode. `warmwatch runs` lists the runs.

    Modes: eager, default, reduce-overhead, max-autotune (the default four) and
    max-autotune-no-cudagraphs. Ctrl-C stops and prints the results so far.

    \b
    Exit code: 0 every mode was measured
               1 a mode failed, or made no step
               2 wrong usage
               126 CMD cannot be run; 127 CMD was not found; 130 Ctrl-C
    """
    check_name(name)
    if as_json and markdown:
        raise UsageError("give either --json or --markdown, not both")
    if verbose and output is not None:
        raise UsageError("give either --verbose or --output, not both")
    wanted = _Wanted(
        command=command,
        modes=_names(names),
        steps=steps,
        timeout=timeout,
        keep_caches=caches == "keep",
        name=name or os.environ.get("WARMWATCH_RUN", "").strip() or script_name(command),
        output=None if verbose else _folder(output),
    )
    tried, stopped_by = _try_all(wanted)
    from warmwatch_monitor.modes.table import modes as table_of

    made = table_of(
        tried,
        training_steps=training_steps,
        caches="kept" if wanted.keep_caches else "cold",
        imposed=[one for one in _IMPOSING if os.environ.get(one) == "1"],
        untried=wanted.modes[len(tried) :],
    )
    _show(made, as_json=as_json, markdown=markdown)
    for one in made.rows:
        if one.outcome in _TOLD_BY_OUTPUT and (said := _last_line(one.output)):
            note(f"warmwatch: {one.mode} ended with: {said}")
    if wanted.output is not None:
        note(f"warmwatch: the script's output is in {wanted.output}")
    if stopped_by:
        raise SystemExit(128 + stopped_by)
    raise SystemExit(0 if all(one.outcome == "measured" for one in made.rows) else FAILED)


def script_name(command: Sequence[str]) -> str:
    """What a run of ``command`` is called: its script or module, else its program."""
    words = list(command)
    scripts = [Path(word).stem for word in words if word.endswith((".py", ".sh"))]
    modules = [after for word, after in pairwise(words) if word == "-m"]
    trained = [one for one in modules if not one.startswith("torch.distributed.")]
    return next(iter([*scripts, *(one.rpartition(".")[2] for one in trained)]), None) or (
        Path(words[0]).name or "run"
    )


def _last_line(output: str | None) -> str:
    """What the script printed last, of a file that may be long."""
    if output is None:
        return ""
    try:
        with Path(output).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:_LONGEST] for line in reversed(lines) if line.strip()), "")


def _names(asked: tuple[str, ...]) -> tuple[str, ...]:
    from warmwatch_monitor.modes.table import NAMES, USUAL

    for one in asked:
        if one not in NAMES:
            raise UsageError(f"--mode: no mode {one!r}. Modes: {', '.join(NAMES)}")
    return tuple(dict.fromkeys(asked)) or USUAL


def _folder(output: str | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="warmwatch-modes-"))
    place = Path(output)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be made: {error.strerror}") from None
    return place


def _try_all(wanted: _Wanted) -> tuple[list[Tried], int]:
    """One after another; and the signal by which somebody ended it, 0 where nobody did."""
    from warmwatch_monitor.modes.bounded import heard
    from warmwatch_monitor.modes.one_mode import Progress, attempt

    tried: list[Tried] = []
    with heard() as stops:
        for number, mode in enumerate(wanted.modes, 1):
            place = None if wanted.output is None else wanted.output / f"{mode}.log"
            progress = Progress(f"mode {number} of {len(wanted.modes)}, {mode}", sys.stderr)
            with startable(wanted.command), fresh_caches(keep=wanted.keep_caches) as caches:
                tried.append(
                    attempt(
                        wanted.command,
                        mode,
                        caches.environ,
                        name=f"{wanted.name}/{mode}",
                        steps=wanted.steps,
                        timeout=wanted.timeout,
                        place=place,
                        stops=stops,
                        progress=progress,
                    )
                )
            if stops.count:
                break
    return tried, stops.last


def _show(made: Modes, *, as_json: bool, markdown: bool) -> None:
    from warmwatch_monitor.modes.wording import page
    from warmwatch_monitor.report.command import as_text, cleaned

    made = cleaned(made)
    if as_json:
        say(as_text(made))
        return
    document = page(made)
    if markdown:
        from warmwatch_monitor.output.markdown import markdown as text_of

        say(text_of(document), end="")
        return
    from warmwatch_monitor.output.lines import lines

    draw(lines(document, width=width(), colour=has_colour()))
