"""The checks of ``doctor`` for the host as a place to compile on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from warmwatch.shared.phrases import counted
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.commands.doctor.checks import Finding, Mark, fine, noted, trouble
from warmwatch_monitor.commands.doctor.compile_host import CachePlace, CompileHost
from warmwatch_monitor.sources.listed import Feed

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
