"""A host's resources for compiling: processors, memory, cache directories. Only read."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from msgspec import Struct

from warmwatch_monitor.sources.proc import full_first, memory_group


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


def compile_host(
    environ: Mapping[str, str],
    *,
    proc: Path = Path("/proc"),
    cgroups: Path = Path("/sys/fs/cgroup"),
) -> CompileHost:
    """The resources that a training with this environment, started here, would have."""
    limit, used = _memory(proc, cgroups)
    return CompileHost(
        processors=len(os.sched_getaffinity(0)),
        quota=_quota(proc, cgroups),
        threads=environ.get("TORCHINDUCTOR_COMPILE_THREADS"),
        memory_limit=limit,
        memory_used=used,
        nodes=_nodes(environ),
        caches=tuple(_cache(*directory) for directory in _directories(environ)),
    )


def _nodes(environ: Mapping[str, str]) -> int | None:
    generator = (environ.get(name, "") for name in _NODES)
    return next((int(value) for value in generator if value.isdecimal()), None)


def _groups(controller: str, proc: Path, cgroups: Path) -> Iterator[Path]:
    """The folders of this process's group and of the groups above it.

    In a container the kernel may use the host's name of the group, which does not exist there: then
    the mounted root is the container's group.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            if controllers and controller not in controllers.split(","):
                continue
            root = cgroups / controller if controllers else cgroups
            group = root / path.lstrip("/")
            while group != root and group.is_relative_to(root):
                yield group
                group = group.parent
            yield root


def _quota(proc: Path, cgroups: Path) -> float | None:
    """The CPU limit of the cgroups, in processors."""
    result = []
    for group in _groups("cpu", proc, cgroups):
        fields = _words(group / "cpu.max")  # QUOTA PERIOD, or max PERIOD
        if not fields:
            fields = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        if len(fields) == 2 and all(word.isdecimal() for word in fields) and int(fields[1]):
            result.append(int(fields[0]) / int(fields[1]))
    return min(result, default=None)


def _memory(proc: Path, cgroups: Path) -> tuple[int | None, int | None]:
    """Limit and use of the group with the least memory left."""
    use = full_first(memory_group("self", str(proc), str(cgroups)))
    return (use.limit, use.used) if use else (None, None)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except (OSError, ValueError):
        return []


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


def _cache(name: str, variable: str, path: str) -> CachePlace:
    there = _nearest(path)
    filesystem, options = _mount(there)
    free_bytes, free_ratio = _room(there)
    return CachePlace(
        name=name,
        variable=variable,
        path=path,
        obstacle=_obstacle(path, there),
        filesystem=filesystem,
        noexec="noexec" in options,
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


def _mount(path: str) -> tuple[str, tuple[str, ...]]:
    """Type and options of the filesystem of ``path``; the last one if several are mounted there."""
    best = ""
    pair: tuple[str, tuple[str, ...]] = "", ()
    for partition in psutil.disk_partitions(all=True):
        inside = path == partition.mountpoint or path.startswith(
            f"{partition.mountpoint.rstrip('/')}/"
        )
        if inside and len(partition.mountpoint) >= len(best):
            best, pair = partition.mountpoint, (partition.fstype, tuple(partition.opts.split(",")))
    return pair


def _room(path: str) -> tuple[int | None, float | None]:
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
