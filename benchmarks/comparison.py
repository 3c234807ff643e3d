"""What each tool shows about "is it still compiling", how late, and at what cost.

``python -m benchmarks.comparison [TOOL...]``. Each tool runs beside the same training
(``nanogpt.py``, on the CPU, with empty compile caches). PyTorch compiles it twice: at its start,
and when its batch grows. A reader polls the output of the tool several times a second, and
records whether it means "compiling". PyTorch's own callbacks are the truth. The costs
are those of further runs with filled caches: all tools in turn, three times. A run that fails, as
TraceML's launcher does on a loaded machine, is reported on standard error and tried again twice.

Needs ``pip install traceml-ai==0.5.0 tlparse==0.4.3 nvitop-exporter==1.7.2``; a tool that is not
installed is left out. nvitop-exporter gets the tests' stand-in for NVML if there is no GPU.
"""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from io import BufferedWriter
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

from benchmarks import served, standin

TRAINING = Path(__file__).with_name("nanogpt.py")
STEPS = int(os.environ.get("STEPS", "200"))
LOOK_SECONDS, REPORT_SECONDS = 0.2, 5.0  # tlparse regenerates its report
FIRST_STEPS = 10  # of each half; they are not counted as usual ones
ROUNDS, TRIES = 3, 3
_NAMES_IT = re.compile(r"compil", re.IGNORECASE)

Statement = bool | None  # whether it compiles; None: the tool does not show that
Look = Callable[[], Statement]


class Tool(Struct):
    """How to start the training with a tool, and how to read what the tool shows."""

    package: str
    looking: Callable[[Path], AbstractContextManager[Look]]
    environ: Mapping[str, str] = {}
    command: tuple[str, ...] = (sys.executable, "@script@", "@file@", str(STEPS))


@contextmanager
def _warmwatch(place: Path) -> Iterator[Look]:
    (place / "records").mkdir()
    environ = {**os.environ, "WARMWATCH_DIR": str(place / "records"), "WARMWATCH_STATE": "off"}
    environ |= {"WARMWATCH_GPU_INTERVAL": "off", "WARMWATCH_LOG_FORMAT": "off"}
    with served.daemon(environ) as daemon:
        yield lambda: json.loads(daemon.ask("/status"))["compiling"]


@contextmanager
def _logs(place: Path) -> Iterator[Look]:
    """The last line of a followed log that starts or ends a compilation."""
    edges = re.compile(r"(start tracing|compiling BACKWARDS)|Step 2: done|done compiling BACKWARDS")

    def look() -> Statement:
        lines = list(edges.finditer((place / "output").read_text(errors="replace")))
        return "done" not in lines[-1][0] if lines else None

    yield look


@contextmanager
def _tlparse(place: Path) -> Iterator[Look]:
    """A report every few seconds: a compilation without metrics is in progress."""
    out = place / "report"
    command = [_program("tlparse"), "--no-browser", "--overwrite", "-o", str(out)]
    last: list[Any] = [0.0, None]

    def look() -> Statement:
        if time.monotonic() - last[0] > REPORT_SECONDS:
            logs = map(str, (place / "trace").glob("*.log"))
            done = subprocess.run([*command, *logs], capture_output=True)
            page = (out / "index.html").read_text(errors="replace") if not done.returncode else ""
            entries = re.findall(r"class='status-(\w+)'>\[\d", page)
            last[:] = time.monotonic(), "missing" in entries if entries else None
        return bool(last[1]) if last[1] is not None else None

    yield look


@contextmanager
def _traceml(place: Path) -> Iterator[Look]:
    def look() -> Statement:
        shown = (place / "output").read_text(errors="replace")
        return True if _NAMES_IT.search(shown) else None

    yield look


@contextmanager
def _nvitop(place: Path) -> Iterator[Look]:
    environ, port = dict(os.environ), served.free_port()
    if standin.is_needed():
        (place / "nvml").mkdir()
        environ |= standin.gpus(1, str(place / "nvml")).environment
    command = [_program("nvitop-exporter"), "--port", str(port)]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)

    def look() -> Statement:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            return True if _NAMES_IT.search(reply.read().decode()) else None
        return None

    try:
        yield look
    finally:
        process.terminate()
        process.wait()


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


NOTHING = "no tool"
TOOLS = {
    NOTHING: Tool("torch", lambda _place: nullcontext(lambda: None)),
    "Warmwatch": Tool("warmwatch", _warmwatch, {"BENCHMARK_AGENT": "1"}),
    "TORCH_LOGS": Tool("torch", _logs, {"TORCH_LOGS": "dynamo,inductor,recompiles,graph_breaks"}),
    "tlparse": Tool("tlparse", _tlparse, {"TORCH_TRACE": "@place@/trace"}),
    "TraceML": Tool(
        "traceml-ai",
        _traceml,
        {"BENCHMARK_TRACEML": "1"},
        (
            *(_program("traceml"), "run", "--mode", "cli", "--logs-dir", "@place@/logs"),
            *("--aggregator-port", "@port@", "--master-port", "@other port@"),
            *("--run-name", "comparison", "@script@", "--args", "@file@", str(STEPS)),
        ),
    ),
    "nvitop-exporter": Tool("nvitop-exporter", _nvitop),
}


class Seen(Struct):
    """A run with a tool.

    Attributes:
        episodes: begin and end of each stretch in which PyTorch compiled. statements: what the
        tool showed, and when. step_seconds, step_cpu_seconds: medians of the usual steps, by the
        wall and by the training's CPU time. share: of a core, of the tool's own processes.
    """

    episodes: list[tuple[float, float]]
    statements: list[tuple[float, Statement]]
    step_seconds: float
    step_cpu_seconds: float
    share: float


def _run(name: str, place: Path, cache: Path, tries: int = TRIES) -> Seen:
    """A run with this tool; raises if the last try fails."""
    was_empty = not cache.exists()
    try:
        return _try(TOOLS[name], place.with_name(f"{place.name}-{tries}"), cache)
    except RuntimeError as error:
        if tries == 1:
            raise
        print(f"{name} failed and runs again: {error}", file=sys.stderr, flush=True)
        if was_empty:
            shutil.rmtree(cache, ignore_errors=True)
        return _run(name, place, cache, tries - 1)


def _try(tool: Tool, place: Path, cache: Path) -> Seen:
    place.mkdir()
    words = {"@place@": str(place), "@script@": str(TRAINING), "@file@": str(place / "truth")}
    words |= {"@port@": str(served.free_port()), "@other port@": str(served.free_port())}

    def filled(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    environ = {**os.environ, **{name: filled(text) for name, text in tool.environ.items()}}
    environ |= {"TORCHINDUCTOR_CACHE_DIR": str(cache), "WARMWATCH_DIR": str(place / "records")}
    environ["PYTHONPATH"] = os.pathsep.join(
        (str(TRAINING.parents[1]), *filter(None, [environ.get("PYTHONPATH")]))
    )
    statements: list[tuple[float, Statement]] = []
    processes: dict[int, tuple[int, float]] = {}
    with ExitStack() as stack:
        output = stack.enter_context((place / "output").open("wb"))
        look = stack.enter_context(tool.looking(place))
        main, terminal = pty.openpty()
        stack.callback(os.close, main)
        began, ended_before = time.monotonic(), _of_ended_children()
        process = subprocess.Popen(
            [filled(word) for word in tool.command], env=environ, stdout=terminal, stderr=terminal
        )
        os.close(terminal)
        os.set_blocking(main, False)
        while process.poll() is None:
            of_ended = _of_ended_children() - ended_before  # tlparse's
            _copy(main, output)
            processes |= _processes()
            statements.append((time.time(), look()))
            time.sleep(LOOK_SECONDS)
        _copy(main, output)
        seconds = time.monotonic() - began
    print(f"{place.name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    if process.returncode or not Path(words["@file@"]).exists():
        raise RuntimeError((place / "output").read_text(errors="replace")[-3000:])
    truth = json.loads(Path(words["@file@"]).read_text())
    own = [cpu for pid, (_, cpu) in processes.items() if not _below(pid, truth["pid"], processes)]
    return _seen(truth, statements, (sum(own) + of_ended) / seconds)


def _copy(main: int, output: BufferedWriter) -> None:
    with suppress(OSError):  # nothing to read, or the terminal is closed
        while text := os.read(main, 1 << 16):
            output.write(text)
    output.flush()


def _of_ended_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _processes() -> dict[int, tuple[int, float]]:
    """Parent and CPU seconds of every process that this one has started."""
    found = {}
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found[one.pid] = one.ppid(), sum(one.cpu_times()[:2])
    return found


def _below(pid: int, training: int, processes: Mapping[int, tuple[int, float]]) -> bool:
    """Whether it is the training, or one that the training started, such as a compiler."""
    while pid in processes and pid != training:
        pid = processes[pid][0]
    return pid == training


def _seen(truth: Any, statements: list[tuple[float, Statement]], share: float) -> Seen:
    steps = truth["steps"]
    episodes: list[tuple[float, float]] = []
    for began, ended in truth["compiling"]:
        if episodes and not any(episodes[-1][1] <= moment <= began for moment, _ in steps):
            episodes[-1] = (episodes[-1][0], ended)  # the same step: its forward, its backward
        else:
            episodes.append((began, ended))
    half = len(steps) // 2
    usual = [*range(FIRST_STEPS, half), *range(half + FIRST_STEPS, len(steps))]
    wall, cpu = (
        statistics.median(steps[n][column] - steps[n - 1][column] for n in usual)
        for column in (0, 1)
    )
    return Seen(episodes, statements, wall, cpu, share)


def _delays(seen: Seen, compiling: bool) -> str:
    """How long after each begin, or end, of a compilation the tool shows it."""
    shown = []
    begins = [began for began, _ in seen.episodes[1:]] + [float("inf")]
    for (began, ended), following in zip(seen.episodes, begins, strict=True):
        since, until = (began, ended) if compiling else (ended, following)
        at = (
            at
            for at, statement in seen.statements
            if since <= at < until and statement is compiling
        )
        first = next(at, None)
        shown.append("never" if first is None else f"{first - since:.1f} s")
    return ", ".join(shown)


def _costs(names: list[str], place: Path, cache: Path) -> dict[str, str]:
    """Step and CPU time with each tool over those without one in the same round: the range."""
    rounds: dict[str, list[Seen]] = {name: [] for name in names}
    for number in range(ROUNDS):
        for name in names:
            rounds[name].append(_run(name, place / f"{number}-{_folder(name)}", cache))

    def cell(name: str, of: Callable[[Seen], float]) -> str:
        mine, bare = ([of(seen) for seen in rounds[one]] for one in (name, NOTHING))
        if name == NOTHING:
            return f"{1e3 * min(mine):.1f} to {1e3 * max(mine):.1f} ms"
        ratios = [one / other for one, other in zip(mine, bare, strict=True)]
        return f"{min(ratios):.2f} to {max(ratios):.2f}"

    return {
        name: f"{cell(name, lambda seen: seen.step_seconds)} | "
        f"{cell(name, lambda seen: seen.step_cpu_seconds)} | "
        f"{statistics.median(seen.share for seen in rounds[name]):.1%}"
        for name in names
    }


def _folder(name: str) -> str:
    return name.replace(" ", "-")


def main(names: list[str]) -> None:
    """Print a row of a Markdown table for each tool."""
    installed = {}
    if unknown := [name for name in names if name not in TOOLS]:
        sys.exit(f"unknown: {', '.join(unknown)}; known are {', '.join(TOOLS)}")
    for name in (NOTHING, *(names or [one for one in TOOLS if one != NOTHING])):
        with suppress(PackageNotFoundError):
            installed[name] = version(TOOLS[name].package)
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: Path(folder) / f"{_folder(name)}-cache" for name in installed}
        seen = {
            name: _run(name, Path(folder) / _folder(name), cache) for name, cache in caches.items()
        }
        costs = _costs(list(installed), Path(folder), caches[NOTHING])
    print("| tool | compiled for | shows it after | shows its end after | step | CPU | own CPU |")
    print("|---|---|---|---|---|---|---|")
    for name, one in seen.items():
        compiled = ", ".join(f"{ended - began:.1f} s" for began, ended in one.episodes)
        shown = f"{_delays(one, True)} | {_delays(one, False)}"
        print(f"| {name} {installed[name]} | {compiled} | {shown} | {costs[name]} |")


if __name__ == "__main__":
    main(sys.argv[1:])
