"""Provenance of a run: Git's files, cache directories, imported modules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from warmwatch.process.provenance import (
    caches,
    commit_of,
    inductor_cache,
    script,
)

HASH = "5c895bda44d996edfc808bed39bdad3033f13af5"


def work_tree(place: Path, head: str, **files: str) -> Path:
    """A script deep in a work tree whose ``.git`` holds these; a name's ``__`` is a ``/``."""
    git = place / ".git"
    for name, text in {"HEAD": head, **files}.items():
        path = git / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return script_in(place)


def script_in(place: Path) -> Path:
    found = place / "src" / "deep" / "train.py"
    found.parent.mkdir(parents=True)
    found.touch()
    return found


MAIN = "ref: refs/heads/main\n"
KNOWN = {
    "a branch": (MAIN, {"refs__heads__main": f"{HASH}\n"}),
    "detached": (f"{HASH}\n", {}),
    "packed": (MAIN, {"packed-refs": f"# pack-refs\n{'a' * 40} refs/x\n{HASH} refs/heads/main\n"}),
    "loose before packed": (
        MAIN,
        {"refs__heads__main": HASH, "packed-refs": f"{'b' * 40} refs/heads/main\n"},
    ),
    "a name for a name": (MAIN, {"refs__heads__main": "ref: refs/heads/x", "refs__heads__x": HASH}),
}
UNKNOWN = {
    "no commit yet": (MAIN, {}),
    "a loop": (MAIN, {"refs__heads__main": MAIN}),
    "out of the folder": ("ref: refs/../../secret\n", {"secret": HASH}),
    "not below refs": ("ref: secret\n", {"secret": HASH}),
    "reftable": ("ref: refs/heads/.invalid\n", {}),
    "no hash": (MAIN, {"refs__heads__main": "password: hunter2"}),
    "another kind of file": ("gitdir: elsewhere\n", {}),
    "a null byte": ("ref: refs/heads/a\0b\n", {}),
}


@pytest.mark.parametrize("case", KNOWN)
def test_the_commit_that_is_checked_out_is_found(case: str, tmp_path: Path) -> None:
    head, files = KNOWN[case]
    assert commit_of(str(work_tree(tmp_path, head, **files))) == HASH


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_value_that_is_not_a_commit_is_not_reported(case: str, tmp_path: Path) -> None:
    head, files = UNKNOWN[case]
    assert commit_of(str(work_tree(tmp_path, head, **files))) == ""


def test_the_commit_equals_that_of_git(tmp_path: Path) -> None:
    """In a clone, with packed branches, and in another work tree."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
        quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(
            ["git", *who, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env=quiet,
        )
        return done.stdout.strip()

    path = script_in(tmp_path)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    assert commit_of(str(path)) == git("rev-parse", "HEAD")
    git("pack-refs", "--all")
    beside = tmp_path.parent / f"{tmp_path.name}-beside"
    git("worktree", "add", "-q", "-b", "other", str(beside))
    git("-C", str(beside), "commit", "-qm", "two", "--allow-empty")
    assert commit_of(str(path)) == git("rev-parse", "main")
    there = commit_of(str(beside / "src" / "deep" / "train.py"))
    assert there == git("rev-parse", "other") != git("rev-parse", "main")


def test_an_odd_file_in_place_of_a_branch_does_not_block(tmp_path: Path) -> None:
    """A FIFO without a writer, a device, a link to itself, an endless file."""
    path = work_tree(tmp_path, MAIN)
    branch = tmp_path / ".git" / "refs" / "heads" / "main"
    branch.parent.mkdir(parents=True)
    for put in (
        lambda: os.mkfifo(branch),
        lambda: branch.symlink_to("/dev/zero"),
        lambda: branch.symlink_to(branch),
        lambda: branch.write_bytes(b"a" * 10**7),
        branch.mkdir,
    ):
        put()
        assert commit_of(str(path)) == ""
        branch.rmdir() if branch.is_dir() else branch.unlink()
    assert commit_of(str(tmp_path / "nowhere" / "train.py")) == ""
    assert commit_of("a\0b") == ""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/train.py", "train.py"),
        ("train", "train"),
        ("/x/package/__main__.py", "package"),
        ("", ""),
        ("-c", ""),
        ("-m", ""),
        ("/usr/lib/ipykernel_launcher.py", ""),
    ],
)
def test_a_script_is_reported_by_its_base_name(path: str, name: str) -> None:
    assert script(path) == name


def test_a_cache_with_content_is_warm_and_no_directory_is_created(tmp_path: Path) -> None:
    place = tmp_path / "inductor"
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(place)}
    cold = {"inductor": "cold", "triton": "cold"}
    assert caches(environ) == cold
    assert not place.exists()
    place.mkdir()
    assert caches(environ) == cold
    (place / "locks").mkdir()
    (place / "a.lock").touch()
    assert caches(environ) == cold
    (place / "fxgraph").mkdir()
    assert caches(environ) == {**cold, "inductor": "warm"}
    (place / "triton" / "0").mkdir(parents=True)
    assert caches(environ)["triton"] == "warm"
    environ["TRITON_CACHE_DIR"] = str(tmp_path / "kernels")
    assert caches(environ)["triton"] == "cold"
    environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    assert caches(environ) == {}


def test_an_unreadable_cache_is_not_reported(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert caches({"TORCHINDUCTOR_CACHE_DIR": str(loop), "TRITON_CACHE_DIR": "a\0b"}) == {}


def test_the_temporary_directory_is_not_tested_by_a_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOGNAME", "a/b")
    monkeypatch.setattr("tempfile.tempdir", None)
    assert inductor_cache({"TMPDIR": str(tmp_path)}) == tmp_path / "torchinductor_a_b"
    assert inductor_cache({"TMPDIR": "/nowhere"}) == Path("/tmp/torchinductor_a_b")
    monkeypatch.setattr("tempfile.tempdir", "/elsewhere")
    assert inductor_cache({"TMPDIR": str(tmp_path)}) == Path("/elsewhere/torchinductor_a_b")
