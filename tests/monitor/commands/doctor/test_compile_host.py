"""Facts of a host that affect compilation, and the checks of ``doctor`` for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.filesystems import NotHereError, mounted
from support.values import replace
from warmwatch_monitor.commands.doctor.checks import Finding, Mark
from warmwatch_monitor.commands.doctor.host_checks import (
    CachePlace,
    CompileHost,
    compile_host,
    judged,
)
from warmwatch_monitor.sources import cgroups, proc

GIB = 2**30
CACHE = CachePlace(
    name="Inductor",
    variable="TORCHINDUCTOR_CACHE_DIR",
    path="/c",
    filesystem="ext4",
    free_bytes=40 * GIB,
    free_ratio=0.5,
    empty=False,
)
HOST = CompileHost(processors=32, caches=(CACHE,))


def graver(host: CompileHost) -> list[Finding]:
    return [one for one in judged(host) if one.mark is not Mark.FINE]


@pytest.mark.parametrize(
    ("host", "mark", "what", "advice"),
    [
        (
            {"quota": 4.0},
            Mark.TROUBLE,
            "32 compile workers for a CPU quota of 4 (its cgroup's, of 32 processors)",
            "set TORCHINDUCTOR_COMPILE_THREADS=4",
        ),
        ({"processors": 4, "threads": "5"}, Mark.NOTE, "5 compile workers", "THREADS=4"),
        ({"processors": 64, "threads": "1"}, Mark.NOTE, "one after another", "THREADS=32"),
        ({"threads": "0"}, Mark.TROUBLE, "=0 is no number of threads", "unset it"),
        (
            {"memory_limit": 8 * GIB, "memory_used": 6 * GIB},
            Mark.NOTE,
            "may take 16.0 GiB beside the training, and the cgroup has 2.0 GiB left of 8.0 GiB",
            "THREADS=2",
        ),
    ],
)
def test_more_workers_than_the_cgroup_allows_get_advice(
    host: dict[str, object], mark: Mark, what: str, advice: str
) -> None:
    (found,) = graver(replace(HOST, **host))
    assert found.mark is mark
    assert what in found.what
    assert advice in found.advice


@pytest.mark.parametrize(
    ("cache", "mark", "what"),
    [
        ({"obstacle": "this user may not write to /c"}, Mark.TROUBLE, "cannot be used: this user"),
        ({"noexec": True}, Mark.TROUBLE, "mounted noexec"),
        ({"filesystem": "nfs4"}, Mark.NOTE, "on a network filesystem (nfs4)"),
        ({"filesystem": "fuse.s3fs"}, Mark.NOTE, "on a network filesystem (fuse.s3fs)"),
        ({"filesystem": "tmpfs"}, Mark.NOTE, "is in memory (tmpfs)"),
        ({"free_bytes": GIB // 2}, Mark.TROUBLE, "nearly full: 512 MiB free"),
        ({"free_ratio": 0.01}, Mark.TROUBLE, "nearly full"),
    ],
)
def test_an_unusable_cache_directory_is_reported_with_its_variable(
    cache: dict[str, object], mark: Mark, what: str
) -> None:
    (found,) = graver(replace(HOST, caches=(replace(CACHE, **cache),)))
    assert found.mark is mark
    assert what in found.what
    assert "TORCHINDUCTOR_CACHE_DIR" in found.advice


def test_a_cold_cache_is_reported_if_other_nodes_wait_for_it() -> None:
    cold = replace(HOST, caches=(replace(CACHE, empty=True),))
    assert graver(cold) == []
    assert graver(replace(cold, nodes=1)) == []
    (found,) = graver(replace(cold, nodes=8))
    assert "cold on this one of 8 nodes" in found.what
    assert "copy it to each node" in found.advice
    assert graver(replace(HOST, nodes=8)) == []


# What is read.


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's files are those that the test writes."""
    monkeypatch.setattr(proc, "PROC", f"{tmp_path}/proc")
    monkeypatch.setattr(cgroups, "MOUNT", f"{tmp_path}/sys")


def files(root: Path, **contents: str) -> None:
    for name, content in contents.items():
        place = root / name.replace("__", "/").replace("_dot_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


@pytest.mark.usefixtures("kernel")
def test_cgroup_v2_limits_are_the_lowest_of_the_group_and_its_ancestors(tmp_path: Path) -> None:
    files(
        tmp_path,
        proc__self__cgroup="0::/a/b\n",
        sys__a__cpu_dot_max="400000 100000\n",
        sys__a__b__cpu_dot_max="max 100000\n",
        sys__a__memory_dot_max=f"{8 * GIB}\n",
        sys__a__memory_dot_current=f"{7 * GIB}\n",
        sys__a__b__memory_dot_max=f"{4 * GIB}\n",
        sys__a__b__memory_dot_current="4096\n",
    )
    host = compile_host({})
    assert (host.quota, host.memory_limit, host.memory_used) == (4.0, 8 * GIB, 7 * GIB)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("version", [1, 2])
def test_cached_files_do_not_count_as_used_memory(version: int, tmp_path: Path) -> None:
    """A training that has read its data set fills a container with it up to any limit."""
    if version == 2:
        files(
            tmp_path,
            proc__self__cgroup="0::/\n",
            sys__memory_dot_max=f"{8 * GIB}\n",
            sys__memory_dot_current=f"{7 * GIB}\n",
            sys__memory_dot_stat=f"anon {GIB}\ninactive_file {5 * GIB}\n",
        )
    else:
        files(
            tmp_path,
            proc__self__cgroup="4:memory:/\n",
            sys__memory__memory_dot_limit_in_bytes=f"{8 * GIB}\n",
            sys__memory__memory_dot_usage_in_bytes=f"{7 * GIB}\n",
            sys__memory__memory_dot_stat=f"inactive_file 1\ntotal_inactive_file {5 * GIB}\n",
        )
    host = compile_host({})
    assert (host.memory_limit, host.memory_used) == (8 * GIB, 2 * GIB)


@pytest.mark.slow
def test_inductors_directory_matches_pytorchs_default() -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    assert compile_host({}).caches[0].path == default_cache_dir()


def test_cache_directories_follow_the_environment(tmp_path: Path) -> None:
    assert compile_host({"TRITON_HOME": "/h"}).caches[1].path == "/h/.triton/cache"
    chosen = {"TORCHINDUCTOR_CACHE_DIR": f"{tmp_path}/i", "TRITON_CACHE_DIR": str(tmp_path)}
    inductor, triton = compile_host(chosen).caches
    assert (inductor.path, inductor.empty, inductor.obstacle) == (f"{tmp_path}/i", True, None)
    assert triton.free_bytes
    assert triton.filesystem
    (tmp_path / "kernel").touch()
    assert compile_host(chosen).caches[1].empty is False


def test_a_real_noexec_mount_is_recognized() -> None:
    try:
        with mounted("ext4") as disk:
            assert os.system(f"mount -o remount,noexec {disk.place}") == 0
            (cache, _) = compile_host({"TORCHINDUCTOR_CACHE_DIR": f"{disk.place}/c"}).caches
            assert (cache.noexec, cache.filesystem) == (True, "ext4")
            assert cache.free_bytes is not None
            assert cache.free_bytes < GIB
    except NotHereError as error:
        pytest.skip(str(error))


def test_a_directory_without_write_permission_is_an_obstacle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    (cache, _) = compile_host({"TORCHINDUCTOR_CACHE_DIR": "/not/there"}).caches
    assert cache.obstacle == "this user may not write to / and cannot be made"
