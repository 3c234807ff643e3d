"""``warmwatch demo``: a small compiled training with a daemon, and the daemon's answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from warmwatch.shared.phrases import duration, took
from warmwatch.shared.values import PHASES
from warmwatch.shared.variables import PREFIX
from warmwatch_monitor.base.errors import DaemonError, WarmwatchError
from warmwatch_monitor.base.interpreter import python
from warmwatch_monitor.base.settings import Address, load_history_settings
from warmwatch_monitor.client.daemon import Answer, Daemon, query_daemon
from warmwatch_monitor.client.started import started_daemon
from warmwatch_monitor.client.summaries import run_summaries
from warmwatch_monitor.commands.report.command import in_short, reported
from warmwatch_monitor.output.amounts import a_step
from warmwatch_monitor.output.console import draw, note, plain, reader_left, say
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.output.summary import STYLES
from warmwatch_monitor.status.goals import lives

_PAUSE_SECONDS = 0.1
_UNWINDS_SECONDS = 5.0  # a training that was interrupted
_RUN = "demo"
# settings of the user that also apply to the demo
_INHERITED = ("WARMWATCH_GPU_INTERVAL", "WARMWATCH_OBSERVE", "WARMWATCH_STATE")


@click.command()
@click.option("--keep-cache", is_flag=True, help="Use the existing Inductor cache.")
@click.option("--json", "is_json", is_flag=True, help="Print only the report of its run, as JSON.")
def demo(keep_cache: bool, is_json: bool) -> None:
    """Train a small compiled model and watch it compile, warm up, and compile again.

    Needs PyTorch and a C++ compiler, no GPU; takes about two minutes on two cores.
    """
    _check()
    with tempfile.TemporaryDirectory(prefix="warmwatch-demo-") as place:
        environ = environment(os.environ, f"{place}/records")
        if not keep_cache:
            environ["TORCHINDUCTOR_CACHE_DIR"] = f"{place}/inductor"
        Path(environ["WARMWATCH_DIR"]).mkdir()
        kept = load_history_settings(os.environ).directory is not None
        with _interruptible(kept=kept), started_daemon(environ) as address, _end_seen(address):
            with _training(environ, Path(place)) as training:
                tell = note if is_json else say
                tell(f"Watch it live: {address.url} (also /status and /metrics)")
                tell("The training has one extra line: import warmwatch.auto\n")
                _watch(address, training, is_json=is_json)
            if reader_left():
                return
        if training.returncode:
            note(Path(place, "output").read_text())
            raise WarmwatchError(f"the training failed with exit code {training.returncode}")
        summaries = run_summaries(dir=environ["WARMWATCH_DIR"])
        if is_json:
            say(as_json(reported(summaries[0])))
        else:
            draw(f"\n{in_short(summaries, kept=kept)}")


def environment(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """``environ`` for the demo's training and daemon, without the user's other settings.

    A daemon that requires authentication would refuse the demo; one with OTLP would export it.
    """
    others = {
        n: value for n, value in environ.items() if n in _INHERITED or not n.startswith(PREFIX)
    }
    return {**others, f"{PREFIX}DIR": directory, f"{PREFIX}RUN": _RUN}


def _check() -> None:
    if find_spec("torch") is None:
        raise WarmwatchError("the demo trains with PyTorch; install it with: pip install torch")
    if not shutil.which(os.environ.get("CXX", "g++")):
        raise WarmwatchError(
            "Inductor compiles with a C++ compiler and none is found; install g++ or set CXX"
        )


@contextlib.contextmanager
def _interruptible(*, kept: bool) -> Iterator[None]:
    """Say how a demo ended that Ctrl-C ended. ``kept``: the history has what the daemon saw."""
    try:
        yield
    except KeyboardInterrupt:
        more = f"; warmwatch report {_RUN} has what was seen of it" if kept else ""
        note(f"\nwarmwatch: the demo was interrupted, and its training has ended{more}")
        raise


@contextlib.contextmanager
def _training(environ: dict[str, str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = python("warmwatch_monitor.commands.demo_training")
    with (
        Path(place, "output").open("wb") as output,
        subprocess.Popen(command, env=environ, stdout=output, stderr=output) as training,
    ):
        try:
            yield training
        except KeyboardInterrupt:  # the terminal sent it to the training, too
            with contextlib.suppress(subprocess.TimeoutExpired):
                training.wait(_UNWINDS_SECONDS)
            raise
        finally:
            training.terminate()


@contextlib.contextmanager
def _end_seen(address: Address) -> Iterator[None]:
    """Let the daemon see the training's end however the demo ends; the history keeps what it saw.

    Else a demo that was interrupted would be listed as compiling for two minutes.
    """
    try:
        yield
    finally:
        answer = _ask(address)
        if answer and any(map(lives, answer["runs"])):
            _ended(address)


def _watch(address: Address, training: subprocess.Popen[bytes], *, is_json: bool) -> None:
    """Show the daemon's answers until the training has ended. Stops if stdout's pipe is closed."""
    answer = _ask(address)
    with _screen(is_json=is_json) as show:
        while training.poll() is None:
            if reader_left():
                return
            answer = _ask(address) or answer
            if answer and answer["runs"]:
                show(answer)
            time.sleep(_PAUSE_SECONDS)
        show(_ended(address))


def _ask(address: Address) -> Answer | None:
    """The daemon's answer now; ``None`` if it does not answer because the compiler uses the CPU."""
    try:
        answer: Answer = plain(query_daemon(Daemon(address)))
    except DaemonError:
        return None
    return answer


def _ended(address: Address) -> Answer:
    """The answer once the daemon has seen the end, which it does within a poll or two."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        answer = _ask(address)
        if answer and answer["runs"] and not lives(answer["runs"][0]):
            return answer
        time.sleep(_PAUSE_SECONDS)
    raise DaemonError("the daemon does not report the end of the training; run `warmwatch doctor`")


@contextlib.contextmanager
def _screen(*, is_json: bool) -> Iterator[Callable[[Answer], None]]:
    """A live picture on a terminal; elsewhere a line whenever the state or the phase changes.

    With ``is_json``, stdout is for the report.
    """
    console = Console(highlight=False, stderr=is_json)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda answer: live.update(picture(answer), refresh=True)
        return
    began, printed, tell = time.monotonic(), [""], note if is_json else say

    def line(answer: Answer) -> None:
        rank = answer["runs"][0]["ranks"][0]
        now = f"{rank['state']} {rank['compile']['phase']} {min(rank['clean_steps'], 3)}"
        if now != printed[-1]:
            printed.append(now)
            tell(f"{time.monotonic() - began:6.1f} s  {answer['summary']}")

    yield line


_BAR = 40


def picture(answer: dict[str, Any]) -> RenderableType:
    """The sentence, then for each rank its state and numbers, and where its compile time went."""
    parts: list[RenderableType] = [Text(answer["summary"], style="bold")]
    parts += [Text(f"  {text}") for text in answer.get("details", ())]
    parts.append(Text())
    for run in answer["runs"]:
        for rank in run["ranks"]:
            parts += [_state(run, rank), _phases(rank["compile"]["phase_seconds"]), Text()]
    return Group(*parts)


def _state(run: dict[str, Any], rank: dict[str, Any]) -> Text:
    compile, step = rank["compile"], a_step(rank)
    line = Text(f"{run['run']} rank {rank['rank']}  ")
    line.append(rank["state"], style=STYLES.get(rank["state"], ""))
    if compile["phase"]:
        line.append(f" ({compile['phase']})")
    line.append(f"   steps {rank['steps']}, clean {rank['clean_steps']}")
    if step is not None:
        line.append(f"   {took(step)} a step")
    line.append(f"   compiled {took(compile['seconds'])}, recompiles {compile['recompiles']}")
    return line


def _phases(seconds: dict[str, float]) -> Table:
    """A bar for each phase that took time, in proportion to the longest."""
    table = Table.grid(padding=(0, 1))
    longest = max(seconds.values(), default=0.0)
    for phase in PHASES:
        if taken := seconds.get(phase):
            bar = Text("█" * max(1, round(_BAR * taken / longest)), style="yellow")
            table.add_row(f"  {phase}", Text(duration(taken), justify="right"), bar)
    return table
