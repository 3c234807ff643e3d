"""What a host offers to a compiler: processors, memory, and places for what it has compiled."""

from __future__ import annotations

from msgspec import Struct


class CachePlace(Struct, frozen=True, kw_only=True):
    """One directory of a compile cache.

    Attributes:
        name: of whose cache. variable: that chooses it. path: where it is.
        obstacle: why nothing can be kept there, in the kernel's words; ``None`` where it can.
        filesystem, noexec: as the kernel mounted it; empty where unknown.
        free_bytes, free_ratio: of its room; the latter also of its inodes, where they are fewer.
        empty: nothing is in it, or it does not exist; ``None`` where nobody can tell.
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
    """What this process's trainings would find here.

    Attributes:
        processors: that it may run on. quota: how many of them its cgroup may use at once.
        threads: ``TORCHINDUCTOR_COMPILE_THREADS`` as it is set; ``None`` where it is not.
        memory_limit, memory_used: bytes, of its cgroup; ``None`` where there is no limit. What is
        kept of files that nobody uses now counts as free.
        nodes: of the job that it is in, where its launcher says.
    """

    processors: int
    quota: float | None = None
    threads: str | None = None
    memory_limit: int | None = None
    memory_used: int | None = None
    nodes: int | None = None
    caches: tuple[CachePlace, ...] = ()
