"""``warmwatch stacks``: what a rank does now, on this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

import click
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from warmwatch.shared.phrases import counted, duration
from warmwatch.shared.record import STACKS, RecordError
from warmwatch.shared.record.stack_file import (
    INNERMOST,
    STACKS_LIMIT,
    Stacks,
    ThreadStack,
    unpack_stacks,
)
from warmwatch.shared.states import State
from warmwatch.shared.values import printable
from warmwatch_monitor.base.errors import NoRunError, SourceError, UnknownRunError, WarmwatchError
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.client.answers import from_daemon, note_missing_directory, settings_from
from warmwatch_monitor.client.choice import choose
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.client.records import make_poller
from warmwatch_monitor.client.summaries import ended_run, ended_words
from warmwatch_monitor.commands import py_spy
from warmwatch_monitor.figures.machine import Compiler
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.model.snapshot import RankView, Snapshot
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, plain, say
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.host import BUSY_WORKER_RATIO
from warmwatch_monitor.sources.processes import (
    Compilers,
    cached,
    children_by_scan,
    children_files,
    compile_workers,
    with_descendants,
)
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.words.conditions import conditions_beyond
from warmwatch_monitor.status.words.sentence import NO_RUN
from warmwatch_monitor.status.words.states import describe_state

_MOST_RANKS = 8
# without a step, where ranks hang that wait for others in init_process_group() or their first step
_BEFORE_WARM = (State.STARTING, State.WARMING)
_NONE_ALIVE = "no rank is alive"
_NONE_YET = (
    "the agent has not recorded stacks of this compilation yet. It does so after 60 s "
    "(WARMWATCH_STACKS), unless something holds the interpreter's lock"
)
# A rank may be between two compilations of a step, or two states, when it is read.
_TRIES, _PAUSE_SECONDS = 4, 0.5


class _NothingHangsError(WarmwatchError):
    """No rank compiles or hangs at this moment."""


@click.command()
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--rank",
    metavar="N",
    type=options.Whole(min=0),
    help="Show this rank, in whatever state it is.",
)
@options.directory
@click.option("--json", "is_json", is_flag=True, help="Print the stacks as JSON.")
@click.pass_context
def stacks(
    ctx: click.Context, /, run: str | None, rank: int | None, dir: str | None, is_json: bool
) -> None:
    """Show the stacks of RUN's ranks that compile, are silent or stalled, or made no step yet.

    The stacks come from py-spy (pip install py-spy) if the kernel permits it, otherwise from the
    agent, which records them a minute into a compilation. Without both, the kernel shows whether
    each thread runs, sleeps or waits for a device. All of that stays on this machine.
    """
    settings = settings_from(dir=dir)
    poller = make_poller(settings)
    note_missing_directory(dir)
    for left in reversed(range(_TRIES)):
        try:
            views = _wanted(_living(poller.poll_once(), run, settings, dir), rank)
        except _NothingHangsError:
            if not left:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            break
    left_out = max(0, len(views) - _MOST_RANKS)
    ranks = (_stacks_of(view) for view in views[:_MOST_RANKS])
    if is_json:
        document = StacksDocument(ranks=[*ranks], ranks_left_out=left_out)
        say(as_json(document))
        ctx.exit(0 if any(rank.source for rank in document.ranks) else 1)
    ctx.exit(0 if _print(ranks, left_out) else 1)


def _living(
    snapshot: Snapshot, run: str | None, settings: Settings, dir: str | None
) -> list[RankView]:
    """The living ranks of ``run``. Raises WarmwatchError if there are none."""
    try:
        values = choose(to_builtins(status(snapshot)), run, os.geteuid())
    except UnknownRunError as error:
        if (earlier := ended_run(error.run, dir)) is None:
            raise
        raise WarmwatchError(f"{_NONE_ALIVE}: {ended_words(earlier, time.time())}") from None
    names = {value["run"] for value in values["runs"]}
    if not names:
        raise NoRunError(NO_RUN)
    living = [
        view for run_view in snapshot.runs if run_view.run in names for view in run_view.living
    ]
    if not living:
        # a daemon saw it end: it knows the signal
        with contextlib.suppress(WarmwatchError):
            if (answered := from_daemon(settings)) is not None:
                values = choose(answered[0], run, os.geteuid())
        raise WarmwatchError(f"{_NONE_ALIVE}: {values['summary']}")
    return living


def _wanted(living: Sequence[RankView], number: int | None) -> list[RankView]:
    """The ranks to show. Raises WarmwatchError if there are none."""
    if number is not None:
        chosen = [view for view in living if view.rank == number]
        if not chosen:
            here = ", ".join(str(view.rank) for view in living[:_MOST_RANKS])
            raise WarmwatchError(f"no living rank {number} is seen here; seen: {here}")
        return chosen
    chosen = [view for view in living if _hangs(view)]
    if not chosen:
        raise _NothingHangsError("no rank compiles or hangs; --rank N shows any rank")
    return chosen


def _hangs(view: RankView) -> bool:
    judged = view.judgement
    waits = judged.state in _BEFORE_WARM and not view.record.slot.steps.steps
    return (
        waits or judged.compiling or judged.state is State.STALLED or "silent" in judged.conditions
    )


def _stacks_of(view: RankView) -> RankStacks:
    """Its stacks from py-spy; if py-spy fails, those that its agent wrote."""
    pid = view.figures.life.pid
    head, *clauses = describe_state(view)
    why = next((f"{clause.joint}{clause.text}" for clause in clauses if clause.text), "")
    rank = RankStacks(
        run=view.run,
        rank=view.rank,
        pid=pid,
        state=view.judgement.state.value,
        summary=f"{head.text}{why}",
        conditions=[condition.text for condition in conditions_beyond(view).values()],
    )
    if pid is None:
        why = "its process cannot be seen from here (another pid namespace)"
        return _by_agent(rank, view, why)
    rank = replace(rank, compilers=[*compilers_of(pid)])
    try:
        stacks = py_spy.dump(pid, stopped=view.process is not None and view.process.stopped)
    except SourceError as error:
        return _by_agent(rank, view, str(error))
    threads = [*map(_thread, stacks)]
    return replace(rank, source="py-spy", age_seconds=0.0, threads=threads) if threads else rank


def _by_agent(rank: RankStacks, view: RankView, why: str) -> RankStacks:
    """``rank`` with the agent's last dump of the compilation in progress, else with its threads as
    the kernel shows them.
    """
    left, problem = _of_agent(view)
    rank = replace(rank, problems=[*filter(None, (why, problem))])
    if not left:
        return replace(rank, kernel_threads=[*kernel_threads(rank.pid)] if rank.pid else [])
    last = left[-1]
    same = next(stacks for stacks in left if _where(stacks) == _where(last))
    return replace(
        rank,
        source="agent",
        age_seconds=max(0, time.monotonic_ns() - last.at_ns) / 1e9,
        phase=last.phase,
        compiled_seconds=_into(last),
        same_since_seconds=_into(same) if len(left) > 1 else None,
        threads=[*map(_thread, last.threads)],
        threads_left_out=last.threads_left_out,
    )


def _of_agent(view: RankView) -> tuple[Sequence[Stacks], str | None]:
    since = view.record.slot.compile.active_since_ns
    if not since:
        return (), "the agent writes stacks of compilations, and none is in progress"
    try:
        left = dumped_stacks(view.record.folder, since)
    except FileNotFoundError:
        left = ()
    except (OSError, RecordError) as error:
        return (), str(error)
    return left, None if left else _NONE_YET


def _print(ranks: Iterator[RankStacks], left_out: int) -> bool:
    """Print the stacks; returns whether there were any."""
    is_found = False
    for rank in ranks:
        for line in _lines(rank):
            say(plain(line))
        for problem in rank.problems:
            note(f"warmwatch: {plain(problem)}")
        is_found = is_found or rank.source is not None
    if left_out:
        say(f"... and {counted(left_out, 'more rank')}: --rank N shows one")
    return is_found


def _lines(rank: RankStacks) -> Iterator[str]:
    yield f"{rank.run} rank {rank.rank}" + ("" if rank.pid is None else f" (pid {rank.pid})")
    yield from (f"  {text}" for text in (rank.summary, *rank.conditions))
    for compiler in rank.compilers:
        doing = "stopped" if compiler.stopped else "busy" if compiler.busy else "idle"
        used = duration(compiler.cpu_seconds)
        yield f"  {compiler.name} (pid {compiler.pid}): {doing}, {used} of CPU so far"
    if rank.source == "py-spy":
        yield "  Python stacks, by py-spy now:"
    elif rank.source:
        yield f"  Python stacks, by its agent {_when(rank)}:"
    for number, thread in enumerate(rank.threads, 1):
        marks = ["main"] * thread.main + ["compiles"] * thread.compiles
        yield f"  thread {number}" + (f" ({', '.join(marks)})" if marks else "")
        lines = [f"    {f.name} ({f.file}:{f.line})" for f in thread.frames]
        if thread.left_out:
            lines.insert(INNERMOST, f"    ... {counted(thread.left_out, 'frame')} left out")
        yield from lines
    if rank.threads_left_out:
        yield f"  ... and {counted(rank.threads_left_out, 'thread')} more"
    if rank.kernel_threads:
        yield from by_kernel(rank.kernel_threads)


def _when(rank: RankStacks) -> str:
    """``5 s ago, after 2 min of compiling in inductor; the same as after 60 s``."""
    into, same = rank.compiled_seconds or 0.0, rank.same_since_seconds
    phase = f" in {rank.phase}" if rank.phase else ""
    text = f"{duration(rank.age_seconds or 0.0)} ago, after {duration(into)} of compiling{phase}"
    if same is None:
        return text
    return f"{text}; " + (
        f"the same as after {duration(same)}" if same < into else "elsewhere than before"
    )


_MOST = 64  # lines; an agent doubles its pauses, so a day has about a dozen


def dumped_stacks(folder: str, since_ns: int) -> tuple[Stacks, ...]:
    """The dumps of the activity that began at ``since_ns``, oldest first.

    Raises:
        OSError: there are none. RecordError: they are invalid.
    """
    with Folder(folder) as opened:
        descriptor, status = opened.open(STACKS)
        try:
            if status.st_size > STACKS_LIMIT:
                raise RecordError(f"its {STACKS} is longer than {STACKS_LIMIT:,} bytes")
            data = os.pread(descriptor, STACKS_LIMIT, 0)
        finally:
            os.close(descriptor)
    result = []
    for line in data.split(b"\n")[:_MOST]:
        with contextlib.suppress(RecordError):  # torn, or not the agent's
            result.append(unpack_stacks(line))
    return tuple(stacks for stacks in result if stacks.since_ns == since_ns)


class KernelThreads(Struct, frozen=True, kw_only=True):
    """Threads that do the same, as the kernel shows them to their user."""

    name: str
    """Their name, as `ps` shows it."""
    count: int
    """Number of the threads."""
    main: bool
    """Whether the main thread is among them."""
    state: str
    """`runs`, `sleeps`, or `waits for a device`, which no signal interrupts."""
    function: str | None = None
    """The kernel function in which they sleep or wait; null if unknown."""


_STATES = {"R": "runs", "S": "sleeps", "I": "sleeps", "D": "waits for a device", "T": "is stopped"}


def kernel_threads(pid: int) -> tuple[KernelThreads, ...]:
    """The activity of the threads of ``pid``, the main one first; empty if it may not be read.

    Needs no permission to trace. For a hanging rank it shows whether it computes, sleeps, or waits
    for a filesystem or a device, though not where in its program.
    """
    counts: dict[tuple[bool, str, str, str | None], int] = {}
    with contextlib.suppress(OSError):
        for thread in proc.threads(pid):
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                key = (thread == pid, *_doing(f"{pid}/task/{thread}"))
                counts[key] = counts.get(key, 0) + 1
    return tuple(
        KernelThreads(name=name, count=count, main=main, state=state, function=function)
        for (main, name, state, function), count in counts.items()
    )


def _doing(thread: str) -> tuple[str, str, str | None]:
    """Name, state and the kernel's function of one thread."""
    stat, function = proc.stat(thread), ""
    if stat.state in "SDI":
        with contextlib.suppress(OSError):
            function = proc.text(f"{proc.PROC}/{thread}/wchan")
    text = printable(function) if function not in ("", "0") else None
    return printable(stat.name), _STATES.get(stat.state, f"is in state {stat.state}"), text


_BETWEEN = 0.5  # seconds


def compilers_of(pid: int) -> tuple[Compiler, ...]:
    """The busiest compilers below ``pid``; none if they may not be read."""
    seen = Compilers()
    compilers: tuple[Compiler, ...] = ()
    for pause in (0.0, _BETWEEN):
        time.sleep(pause)
        children = cached(children_files() or children_by_scan())
        workers = compile_workers(pid, children)
        below = with_descendants(pid, children)[1:]
        compilers = seen.read(below, workers, time.monotonic_ns(), BUSY_WORKER_RATIO)
    return compilers


class PythonThread(Struct, frozen=True, kw_only=True):
    """The Python stack of one thread."""

    frames: list[Place]
    """Its frames, innermost first."""
    left_out: int
    """Number of frames left out of the middle."""
    main: bool
    """Whether it is the main thread."""
    compiles: bool
    """Whether it has compile activity in progress."""


class RankStacks(Struct, frozen=True, kw_only=True):
    """What one rank does now."""

    run: str
    """The run."""
    rank: int
    """The rank, from 0."""
    pid: int | None
    """Its pid in this pid namespace; null if the process cannot be seen."""
    state: str
    """Its state, as in `/status`."""
    summary: str
    """What it does, in one clause."""
    conditions: list[str]
    """Its conditions, one clause each."""
    compilers: list[Compiler] = []
    """The compilers below its process."""
    source: str | None = None
    """Where the stacks come from: `py-spy` or `agent`; null without stacks."""
    age_seconds: float | None = None
    """How old the stacks are, in seconds; null without stacks."""
    phase: str | None = None
    """Phase of the compile activity at that time; null if unknown, and from py-spy."""
    compiled_seconds: float | None = None
    """For how long it had compiled at that time; null from py-spy, and without stacks."""
    same_since_seconds: float | None = None
    """For how long it had compiled when the agent first found it there; null if it looked once."""
    threads: list[PythonThread] = []
    """Its Python threads: those that compile, the main thread, then the others."""
    threads_left_out: int = 0
    """Number of threads that the agent left out."""
    kernel_threads: list[KernelThreads] = []
    """Its threads as the kernel shows them, if there are no Python stacks."""
    problems: list[str] = []
    """Why something is missing, one sentence each."""


class StacksDocument(Struct, frozen=True, kw_only=True):
    """The stacks of `warmwatch stacks --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    ranks: list[RankStacks]
    """The ranks that compile, are silent or stalled, or made no step yet; or the requested rank."""
    ranks_left_out: int
    """Number of other such ranks."""


def by_kernel(threadses: Sequence[KernelThreads]) -> Iterator[str]:
    """A line for each group of threads with one name and activity."""
    yield "  Its threads, by the kernel now:"
    for threadse in threadses:
        marks = ["main"] * threadse.main + [f"{threadse.count} threads"] * (threadse.count > 1)
        named = f"{threadse.name} ({', '.join(marks)})" if marks else threadse.name
        yield f"    {named}: {threadse.state}" + (
            f" in {threadse.function}" if threadse.function else ""
        )


def _thread(stack: ThreadStack) -> PythonThread:
    frames = [Place(**frame._asdict()) for frame in stack.frames]
    return PythonThread(
        frames=frames, left_out=stack.left_out, main=stack.main, compiles=stack.compiles
    )


def _into(stacks: Stacks) -> float:
    return max(0, stacks.at_ns - stacks.since_ns) / 1e9


def _where(stacks: Stacks) -> tuple[object, ...]:
    """The stacks of the compiling threads; without any, of all threads."""
    chosen = [thread for thread in stacks.threads if thread.compiles] or stacks.threads
    return tuple(thread.frames for thread in chosen)
