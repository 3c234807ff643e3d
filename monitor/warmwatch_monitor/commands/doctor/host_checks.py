"""The checks of ``doctor`` for the host as a place to compile on: processors, memory, cache
directories. They are only read.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.phrases import counted
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.commands.doctor.checks import Finding, Mark, fine, noted, trouble
from warmwatch_monitor.sources.cgroups import cpu_quota, full_first, memory_group
from warmwatch_monitor.sources.listed import Feed
from warmwatch_monitor.sources.proc import mount_of


class CachePlace(Struct, frozen=True, kw_only=True):
    """One directory of a compile cache.

    Attributes:
        name: the cache's. variable: the one that selects it. path: where it is.
        obstacle: why nothing can be stored there, in the kernel's words; ``None`` if it can.
        filesystem, noexec: from the kernel's mount table; empty if unknown.
        free_bytes, free_ratio: of its space; the ratio also of its inodes, if that is lower.
        empty: nothing is in it, or it does not exist; ``None`` if unknown.
    """

    name: str
    variable: str
    path: str
    obstacle: str | None = None
    filesystem: str = ""
    noexec: bool = False
    free_bytes: int | None = None
    free_ratio: float | None = None
    empty: bool | None = None


class CompileHost(Struct, frozen=True, kw_only=True):
    """The resources for this process's trainings.

    Attributes:
        processors: those that it may use. quota: how many of them its cgroup may use in parallel.
        threads: the value of ``TORCHINDUCTOR_COMPILE_THREADS``; ``None`` if it is not set.
        memory_limit, memory_used: bytes, of its cgroup; ``None`` without a limit. Inactive page
            cache counts as free.
        nodes: of its job, if the launcher reports it.
    """

    processors: int
    quota: float | None = None
    threads: str | None = None
    memory_limit: int | None = None
    memory_used: int | None = None
    nodes: int | None = None
    caches: tuple[CachePlace, ...] = ()


_WRITE_AND_ENTER = os.W_OK | os.X_OK
_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "GROUP_WORLD_SIZE", "PET_NNODES", "NNODES")


def compile_host(environ: Mapping[str, str]) -> CompileHost:
    """The resources that a training with this environment, started here, would have."""
    memory = full_first(memory_group("self"))
    return CompileHost(
        processors=len(os.sched_getaffinity(0)),
        quota=cpu_quota("self"),
        threads=environ.get("TORCHINDUCTOR_COMPILE_THREADS"),
        memory_limit=memory.limit if memory else None,
        memory_used=memory.used if memory else None,
        nodes=_nodes(environ),
        caches=tuple(_cache_place(*directory) for directory in _directories(environ)),
    )


def _nodes(environ: Mapping[str, str]) -> int | None:
    generator = (environ.get(name, "") for name in _NODES)
    return next((int(value) for value in generator if value.isdecimal()), None)


# The caches' directories.


def _directories(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name, variable and path, by the rules of PyTorch and Triton."""
    inductor = environ.get("TORCHINDUCTOR_CACHE_DIR") or _default()
    yield "Inductor", "TORCHINDUCTOR_CACHE_DIR", os.path.abspath(inductor)  # noqa: PTH100
    home = environ.get("TRITON_HOME") or os.path.expanduser("~")  # noqa: PTH111 - it never raises
    triton = environ.get("TRITON_CACHE_DIR") or f"{home}/.triton/cache"
    yield "Triton", "TRITON_CACHE_DIR", os.path.abspath(triton)  # noqa: PTH100


def _default() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        user = f"uid_{os.getuid()}"
    plain = re.sub(r'[\\/:*?"<>|]', "_", user)
    return f"{tempfile.gettempdir()}/torchinductor_{plain}"


def _cache_place(name: str, variable: str, path: str) -> CachePlace:
    there = _nearest(path)
    mount = mount_of(there)
    free_bytes, free_ratio = _free_space(there)
    return CachePlace(
        name=name,
        variable=variable,
        path=path,
        obstacle=_obstacle(path, there),
        filesystem=mount.kind,
        noexec="noexec" in mount.options,
        free_bytes=free_bytes,
        free_ratio=free_ratio,
        empty=_is_empty(path),
    )


def _nearest(path: str) -> str:
    """``path``, or the nearest above it that exists."""
    result = Path(path)
    while result != result.parent and not os.path.lexists(result):
        result = result.parent
    return os.path.realpath(result)


def _obstacle(path: str, there: str) -> str | None:
    if not Path(there).is_dir():
        return f"{there} is no directory"
    if not os.access(there, _WRITE_AND_ENTER):
        made = "" if os.path.realpath(path) == there else " and cannot be made"
        return f"this user may not write to {there}{made}"
    return None


def _free_space(path: str) -> tuple[int | None, float | None]:
    try:
        stat = os.statvfs(path)
    except OSError:
        return None, None
    if not stat.f_blocks:
        return None, None
    ratios = [stat.f_bavail / stat.f_blocks]
    if stat.f_files:  # btrfs and others report no inodes
        ratios.append(stat.f_favail / stat.f_files)
    return stat.f_bavail * stat.f_frsize, min(ratios)


def _is_empty(path: str) -> bool | None:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return None


_PATIENCE_SECONDS = 10.0
_MOST_THREADS = 32  # PyTorch uses one for each processor, at most this many
_WORKER_BYTES = 512 << 20  # memory that a worker, or its compiler, may take
_LEAST_BYTES = 1 << 30
_LEAST_RATIO = 0.02
_IN_MEMORY = ("tmpfs", "ramfs")
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"),
    *("glusterfs", "panfs", "wekafs", "orangefs", "pvfs2", "daos", "virtiofs"),
)
_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


def compiling(read: Callable[[], CompileHost]) -> Iterator[Finding]:
    """The findings about the result of ``read``, which runs in a thread with a timeout."""
    feed = Feed("compile host", read, Clock(), _PATIENCE_SECONDS)
    answered = feed.read_within(_PATIENCE_SECONDS)
    host, health = feed.current(Clock().monotonic_ns())
    if not answered:
        yield trouble(
            f"a directory of a compile cache has not answered for {_PATIENCE_SECONDS:g} s",
            advice="see what TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR name: a compilation "
            "would hang there too; choose directories on a local disk",
        )
    elif host is None:
        yield noted(f"what compiling finds here: {health.error}")
    else:
        yield from judged(host)


def judged(host: CompileHost) -> Iterator[Finding]:
    threads = _thread_count(host)
    yield from _threads(host, threads)
    if threads is not None and threads > 1:
        yield from _memory(host, threads)
    for cache in host.caches:
        yield from (replace(finding, names=(cache.path,)) for finding in _cache(cache))
        yield from _cold(cache, host.nodes)


def _thread_count(host: CompileHost) -> int | None:
    """The number of compile workers PyTorch would start; ``None`` if that would fail."""
    if host.threads is None:
        return min(_MOST_THREADS, host.processors)
    text = host.threads.strip()
    return int(text) if text.isdecimal() and int(text) else None


def _threads(host: CompileHost, threads: int | None) -> Iterator[Finding]:
    if threads is None:
        yield trouble(
            f"{_THREADS}={host.threads} is no number of threads",
            advice="set it to a number from 1 on, or unset it",
        )
        return
    has = math.ceil(host.processors if host.quota is None else min(host.quota, host.processors))
    by = _by(host)
    setting = "" if host.threads is None else f" ({_THREADS})"
    if threads > has:
        yield Finding(
            mark=Mark.TROUBLE if threads >= 2 * has else Mark.NOTE,
            what=f"{threads} compile workers{setting} for {by}: they get in each other's way",
            advice=f"set {_THREADS}={has}",
        )
    elif threads == 1 < has:
        yield noted(
            f"one compile thread{setting} for {by}: kernels are compiled one after another",
            advice=f"set {_THREADS}={min(_MOST_THREADS, has)}, unless it was meant so (a debugger)",
        )
    else:
        workers = counted(threads, "compile worker")
        yield fine(f"{workers}{setting} for {by}")


def _by(host: CompileHost) -> str:
    if host.quota is not None and host.quota < host.processors:
        return f"a CPU quota of {host.quota:.3g} (its cgroup's, of {host.processors} processors)"
    return f"{host.processors} processor" + ("" if host.processors == 1 else "s")


def _memory(host: CompileHost, threads: int) -> Iterator[Finding]:
    if host.memory_limit is None or host.memory_used is None:
        return
    left, wanted = max(0, host.memory_limit - host.memory_used), threads * _WORKER_BYTES
    if left < wanted:
        fewer = max(1, left // (2 * _WORKER_BYTES))
        yield noted(
            f"{threads} compile workers may take {_size(wanted)} beside the training, and the "
            f"cgroup has {_size(left)} left of {_size(host.memory_limit)}",
            advice=f"raise the limit, or set {_THREADS}={fewer}: a worker that is killed for want "
            "of memory ends the training",
        )


def _cache(cache: CachePlace) -> Iterator[Finding]:
    name = f"{cache.name}'s cache {cache.path}"
    if cache.obstacle is not None:
        yield trouble(
            f"{name} cannot be used: {cache.obstacle}",
            advice=f"set {cache.variable} to a directory of your own: compiling fails without",
        )
        return
    troubles = [*_place(cache, name), *_room(cache, name)]
    yield from troubles
    if not troubles:
        on = f" ({cache.filesystem})" if cache.filesystem else ""
        free = "" if cache.free_bytes is None else f", {_size(cache.free_bytes)} free"
        what = "all kernels for a GPU" if cache.name == "Triton" else "all"
        state = f", empty: the next run compiles {what}" if cache.empty else ""
        yield fine(f"{name}{on}{free}{state}")


def _place(cache: CachePlace, name: str) -> Iterator[Finding]:
    if cache.noexec:
        yield trouble(
            f"{name} is on a filesystem mounted noexec: what is compiled for the CPU, and "
            "Triton's launchers, cannot be loaded from there",
            advice=f"set {cache.variable} to a directory on another filesystem",
        )
    if cache.filesystem in _NETWORK or cache.filesystem.startswith("fuse."):
        yield noted(
            f"{name} is on a network filesystem ({cache.filesystem}): thousands of small "
            "files and locks are slow there, for each rank",
            advice=f"set {cache.variable} to a local disk, and copy the cache there before a run",
        )
    if cache.filesystem in _IN_MEMORY:
        yield noted(
            f"{name} is in memory ({cache.filesystem}): it counts as used memory, and is gone "
            "with the next reboot or container",
            advice=f"set {cache.variable} to a disk that stays, to compile once and not each time",
        )


def _room(cache: CachePlace, name: str) -> Iterator[Finding]:
    if cache.free_bytes is None or cache.free_ratio is None:
        return
    if cache.free_bytes < _LEAST_BYTES or cache.free_ratio < _LEAST_RATIO:
        yield trouble(
            f"{name}: its filesystem is nearly full: {_size(cache.free_bytes)} free, and "
            f"{cache.free_ratio * 100:.0f} % of its room or its inodes",
            advice=f"free some, or set {cache.variable} to another disk; a cache may be removed "
            "while nothing trains, and is then filled again",
        )


def _cold(cache: CachePlace, nodes: int | None) -> Iterator[Finding]:
    if cache.empty and not cache.obstacle and nodes is not None and nodes > 1:
        yield noted(
            f"{cache.name}'s cache is cold on this one of {nodes} nodes: all others wait for "
            "a node that compiles alone",
            advice="fill the cache by a short run and copy it to each node before the long one, "
            "or see torch.compiler.save_cache_artifacts",
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
