"""What a run was: its script, commit, versions, and the state of its compile caches at the
start.

The commit is read from Git's own files; no command is run.
"""

from __future__ import annotations

import getpass
import os
import re
import stat
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from warmwatch._guard import pass_on, quietly
from warmwatch.process.threads import MaskedThread, release, taken

_MOST_FOLDERS = 32  # from the script up
_MOST_LINKS = 5  # of a ref that names a ref
_SMALL, _PACKED = 4 * 1024, 1024 * 1024  # bytes that are read of a file, of ``packed-refs``
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/[^\s\0]{1,240}")


def commit_of(script: str) -> str:
    """Its full hash; empty where it is not known. Files may have been changed since."""
    try:
        git = _git_folder(Path(script).resolve().parent)
        return _head(git) if git else ""
    except (OSError, ValueError, RuntimeError) as error:  # no such path, or one that leads nowhere
        pass_on(error)
        return ""


def _git_folder(folder: Path) -> Path | None:
    """Git's own folder of the innermost work tree around ``folder``, on its filesystem."""
    device = folder.stat().st_dev
    for place in (folder, *folder.parents)[:_MOST_FOLDERS]:
        if place.stat().st_dev != device:
            return None
        git = _led_to(place / ".git")
        if git and _read(git / "HEAD"):
            return git
    return None


def _led_to(path: Path) -> Path | None:
    """A folder of that name, or the one that a file of that name leads to (``git worktree``)."""
    if path.is_dir():
        return path
    kind, _, led = _read(path).partition(":")
    return path.parent / led.strip() if kind == "gitdir" and led.strip() else None


def _head(git: Path) -> str:
    common = _read(git / "commondir")
    folders = (git, git / common) if common else (git,)
    found = _read(git / "HEAD")
    for _ in range(_MOST_LINKS):
        if _COMMIT.fullmatch(found):
            return found
        ref = found.removeprefix("ref:").strip()
        if ref == found or not _REF.fullmatch(ref) or ".." in ref:
            return ""
        found = _resolved(folders, ref)
    return ""


def _resolved(folders: tuple[Path, ...], ref: str) -> str:
    """What a branch points to: in a file of its own, or among those that were packed."""
    loose = next(filter(None, (_read(folder / ref) for folder in folders)), "")
    if loose:
        return loose
    packed = _read(folders[-1] / "packed-refs", _PACKED)
    lines = (line.partition(" ") for line in packed.splitlines())
    return next((hashed for hashed, _, name in lines if name == ref), "")


def _read(path: Path, most: int = _SMALL) -> str:
    """The beginning of a regular file; empty of anything else, or where there is nothing."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return os.read(descriptor, most).decode("utf-8", "replace").strip() if regular else ""
        finally:
            os.close(descriptor)
    except OSError as error:
        pass_on(error)
        return ""


_NO_SCRIPTS = ("", "-c", "-m", "-", "ipykernel_launcher.py", "colab_kernel_launcher.py")
_LOOKED_AT = 16  # entries of a directory: locks may lie in one in which nothing was cached
_NO_ENTRIES = ("locks", ".lock")
_MOST_THREADS = 1_000_000


def at_first(environ: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """What is known as a run begins, by the identity's names; nothing that takes longer."""
    known, found, done = dict(environ), list[dict[str, Any]](), taken()

    def look() -> None:
        try:
            found.append(quietly("provenance", _looked_at, known) or {})
        finally:
            release(done)

    if MaskedThread(look).start():
        done.acquire(timeout=seconds)
    return found[0] if found else {}


def _looked_at(environ: Mapping[str, str]) -> dict[str, Any]:
    path = script_path()
    name = script(path)
    return {
        "script": name,
        "commit": commit_of(path) if name else "",
        "caches": caches(environ),
    }


def by_now() -> dict[str, Any]:
    """What is known of modules that somebody has imported by now, likewise."""
    threads = getattr(sys.modules.get("torch._inductor.config"), "compile_threads", None)
    sane = type(threads) is int and 0 <= threads <= _MOST_THREADS
    return {
        "cuda": _text(sys.modules.get("torch.version"), "cuda"),
        "triton": _text(sys.modules.get("triton"), "__version__"),
        "compile_threads": threads if sane else None,
    }


def _text(module: object, name: str) -> str:
    value = getattr(module, name, None)
    return value if isinstance(value, str) else ""


def script_path() -> str:
    """The file that runs; the program's working directory may be another one by now."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return main if isinstance(main, str) else sys.argv[0] if sys.argv else ""


def script(path: str) -> str:
    """Its base name, the package's for ``-m package``; empty where there is no script."""
    last = Path(path)
    name = last.parent.name if last.name == "__main__.py" else last.name
    return "" if name in _NO_SCRIPTS else name


def caches(environ: Mapping[str, str]) -> dict[str, str]:
    """``cold`` or ``warm`` by cache: Inductor's own, and the one that it has Triton use.

    Warm is one in which anything lies, of whichever model. Without a word where caches are turned
    off, or cannot be looked at.
    """
    if environ.get("TORCHINDUCTOR_FORCE_DISABLE_CACHES") == "1":
        return {}
    inductor = inductor_cache(environ)
    triton = Path(environ.get("TRITON_CACHE_DIR") or inductor / "triton")
    looked_at = {"inductor": _state(inductor), "triton": _state(triton)}
    return {cache: state for cache, state in looked_at.items() if state}


def inductor_cache(environ: Mapping[str, str]) -> Path:
    """The directory as PyTorch chooses it (2.6 to 2.15), which would make it if it were asked."""
    if chosen := environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(chosen)
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError) as error:
        pass_on(error)
        user = f"uid_{os.getuid()}"
    return _temporary(environ) / ("torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def _temporary(environ: Mapping[str, str]) -> Path:
    """The directory that ``tempfile`` chooses, which would try to write there."""
    chosen = getattr(sys.modules.get("tempfile"), "tempdir", None)
    if isinstance(chosen, str):
        return Path(chosen)
    named = [Path(environ[name]) for name in ("TMPDIR", "TEMP", "TMP") if environ.get(name)]
    return next((folder for folder in named if folder.is_dir()), Path("/tmp"))  # noqa: S108


def _state(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _LOOKED_AT)]
    except (OSError, ValueError) as error:
        pass_on(error)
        return "cold" if isinstance(error, FileNotFoundError | NotADirectoryError) else ""
    return "warm" if any(not name.endswith(_NO_ENTRIES) for name in names) else "cold"
