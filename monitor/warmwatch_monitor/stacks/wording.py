"""What ``warmwatch stacks`` shows of a rank, as lines of text or as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from warmwatch.shared.phrases import counted, duration
from warmwatch_monitor.model import INNERMOST, Compiler, RankView, Stacks, ThreadStack
from warmwatch_monitor.published import Place
from warmwatch_monitor.stacks.sources import KernelThreads
from warmwatch_monitor.status.words.conditions import short_conditions
from warmwatch_monitor.status.words.states import describe_state


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
    compilers: list[Compiler]
    """The compilers below its process."""
    source: str | None
    """Where the stacks come from: `py-spy` or `agent`; null without stacks."""
    age_seconds: float | None
    """How old the stacks are, in seconds; null without stacks."""
    phase: str | None
    """Phase of the compile activity at that time; null if unknown, and from py-spy."""
    threads: list[PythonThread]
    """Its Python threads: those that compile, the main thread, then the others."""
    threads_left_out: int
    """Number of threads that the agent left out."""
    kernel_threads: list[KernelThreads]
    """Its threads as the kernel shows them, if there are no Python stacks."""
    problems: list[str]
    """Why something is missing, one sentence each."""


class StacksDocument(Struct, frozen=True, kw_only=True):
    """The stacks of `warmwatch stacks --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    ranks: list[RankStacks]
    """The ranks that compile, are silent or are stalled, or the requested rank."""
    ranks_left_out: int
    """Number of other such ranks."""


def heading(view: RankView) -> Iterator[str]:
    """The rank, its activity, and a line for each condition."""
    pid = view.figures.life.pid
    yield f"{view.run} rank {view.rank}" + ("" if pid is None else f" (pid {pid})")
    head, clauses = describe_state(view)
    why = next((f"{one.joint}{one.text}" for one in clauses if one.text), "")
    yield f"  {head}{why}"
    yield from (f"  {words}" for _, words in short_conditions(view))


def at_work(compilers: Sequence[Compiler]) -> Iterator[str]:
    """A line for each compiler below it."""
    for one in compilers:
        doing = "stopped" if one.stopped else "busy" if one.busy else "idle"
        yield f"  {one.name} (pid {one.pid}): {doing}, {duration(one.cpu_seconds)} of CPU so far"


def left_by_agent(stacks: Sequence[Stacks], now_ns: int) -> Iterator[str]:
    """The latest stack dump of the agent, and since when it has been the same."""
    last = stacks[-1]
    ago = duration(max(0, now_ns - last.at_ns) / 1e9)
    phase = f" in {last.phase}" if last.phase else ""
    into = f"after {_into(last)} of compiling{phase}"
    yield f"  Python stacks, by its agent {ago} ago, {into}{_as(stacks)}:"
    yield from threads(last.threads)
    if last.threads_left_out:
        yield f"  ... and {counted(last.threads_left_out, 'thread')} more"


def by_kernel(known: Sequence[KernelThreads]) -> Iterator[str]:
    """A line for each group of threads with one name and activity."""
    yield "  Its threads, by the kernel now:"
    for one in known:
        marks = ["main"] * one.main + [f"{one.count} threads"] * (one.count > 1)
        named = f"{one.name} ({', '.join(marks)})" if marks else one.name
        yield f"    {named}: {one.state}" + (f" in {one.function}" if one.function else "")


def threads(stacks: Sequence[ThreadStack]) -> Iterator[str]:
    """Each thread, innermost frame first."""
    for number, one in enumerate(stacks, 1):
        marks = ["main"] * one.main + ["compiles"] * one.compiles
        yield f"  thread {number}" + (f" ({', '.join(marks)})" if marks else "")
        lines = [f"    {f.name} ({f.file}:{f.line})" for f in one.frames]
        if one.left_out:
            lines.insert(INNERMOST, f"    ... {counted(one.left_out, 'frame')} left out")
        yield from lines


class RankProcess(Struct, frozen=True, kw_only=True):
    """The result for one rank. ``problems``: why something is missing, one sentence each."""

    view: RankView
    compilers: Sequence[Compiler] = ()
    present: Sequence[ThreadStack] = ()
    left: Sequence[Stacks] = ()
    kernel: Sequence[KernelThreads] = ()
    problems: Sequence[str] = ()


def rank_stacks(of: RankProcess, now_ns: int) -> RankStacks:
    """The same for programs."""
    view, present = of.view, of.present
    last = of.left[-1] if of.left and not present else None
    _, *more = (line.strip() for line in heading(view))
    return RankStacks(
        run=view.run,
        rank=view.rank,
        pid=view.figures.life.pid,
        state=view.judgement.state.value,
        summary=more[0],
        conditions=more[1:],
        compilers=[*of.compilers],
        source="py-spy" if present else "agent" if last else None,
        age_seconds=0.0 if present else max(0, now_ns - last.at_ns) / 1e9 if last else None,
        phase=last.phase if last else None,
        threads=[_thread(one) for one in present or (last.threads if last else ())],
        threads_left_out=last.threads_left_out if last else 0,
        kernel_threads=[*of.kernel],
        problems=[*of.problems],
    )


def _thread(one: ThreadStack) -> PythonThread:
    frames = [Place(**frame._asdict()) for frame in one.frames]
    return PythonThread(frames=frames, left_out=one.left_out, main=one.main, compiles=one.compiles)


def _into(one: Stacks) -> str:
    return duration(max(0, one.at_ns - one.since_ns) / 1e9)


def _as(stacks: Sequence[Stacks]) -> str:
    """Since when every dump has shown the same."""
    same = [one for one in stacks if _where(one) == _where(stacks[-1])]
    if len(stacks) < 2 or len(same) < 2:
        return "; elsewhere than before" if len(stacks) > 1 else ""
    return f"; the same as after {_into(same[0])}"


def _where(one: Stacks) -> tuple[object, ...]:
    """The stacks of the compiling threads; without any, of all threads."""
    chosen = [thread for thread in one.threads if thread.compiles] or one.threads
    return tuple(thread.frames for thread in chosen)
