"""``python -m mutants [MODULE ...] [--workers N]``: break modules in every small way.

Each change is tried in a process of its own. One of a function is put in its place where all tests
are collected (``in_place``), which takes a tenth of the time. Any other, and what is survived so,
is tried in a process forked from one that has all libraries loaded and nothing of ours: the module
is compiled with the change where it is imported, so constants, classes and what runs at the import
count too, which the tools that change functions leave out. The tests that are about it run there
until one fails. If more changes of a function survive than ``accepted.py`` gives reasons for, they
are printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import importlib.util
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from mutants.accepted import ACCEPTED
from mutants.changes import TELL, Change, changes, with_calls_reported
from mutants.in_place import InPlace, unnoticed
from mutants.targets import PARTS, TARGETS

_TESTS = Path(__file__).parents[1]
_OURS = ("warmwatch", "warmwatch_monitor", "support", "test_", "conftest", "tests")
_ARGUMENTS = (
    *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("--timeout=0", "--hypothesis-profile=mutants", "--assert=plain"),
)
# What computes for more than so many seconds and times as long as ever, or lasts so many times as
# long as that, on a busy machine, or takes more memory, was noticed.
_SECONDS, _TIMES, _BUSY, _BYTES = 10, 5, 2, 4 << 30


class Changed(MetaPathFinder):
    """Finds the module ``name`` with what ``tree`` makes of it."""

    def __init__(self, name: str, tree: ast.Module, **given: object) -> None:
        self._name, self._tree, self._given = name, tree, given

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._tree, self._given)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module, given: Mapping[str, object]) -> None:
        super().__init__(name, path)
        self._tree, self._given = tree, given

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._given)
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.get_filename(fullname), "exec")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (2)")
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - set(TARGETS):
        parser.error(
            f"no such module: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}"
        )
    chosen = {name: TARGETS[name] for name in arguments.modules or TARGETS}
    os.chdir(_TESTS.parent)  # pytest's names of tests are relative to it
    with tempfile.TemporaryDirectory() as compiled:
        _keep_compiled(compiled)
        _load_libraries({test for tests in chosen.values() for test in tests})
        gc.freeze()  # pytest collects garbage at its end, which is to be that of one trial
        return max([_try(name, tests, arguments.workers) for name, tests in chosen.items()])


def _keep_compiled(place: str) -> None:
    """What is not changed is compiled once; what is changed never comes there."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = place
    sys.dont_write_bytecode, sys.pycache_prefix = False, place


def _load_libraries(tests: set[str]) -> None:
    """All that the tests import and is not ours, so that no change has to wait for it."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        _silence()
        paths = [str(_TESTS / test) for test in tests]
        status = pytest.main([*_ARGUMENTS, "--collect-only", *paths])
        os.write(writing, "\n".join(sys.modules).encode())
        os._exit(int(status))
    os.close(writing)
    with os.fdopen(reading) as names:
        found = names.read().split("\n")
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the tests cannot be collected; see to that first")
    for name in found:
        if not name.startswith(_OURS) and name not in sys.modules:
            try:
                importlib.import_module(name)
            except ImportError:
                continue


def _try(module: str, tests: Sequence[str], workers: int) -> int:
    """All changes of one module; 1 where one is survived that may not be, or no longer is."""
    began, path = time.monotonic(), _path(module)
    part = PARTS.get(module, "")
    made = [one for one in changes(path.read_text()) if one.name.startswith(part)]
    known = ACCEPTED.get(module, {})
    trial = Trial(module, path, [str(_TESTS / test) for test in tests])
    survived = [(change.name, change.line) for change in trial.survivors(made, workers)]
    bad, stale = unaccounted(survived, known)
    seconds = time.monotonic() - began
    print(f"{module}: {len(made)} changes, {len(survived)} survived, {seconds:.0f} s", flush=True)
    for name, line in bad:
        print(f"  survived, {path.name}:{line}: {name}", flush=True)
    for function, count in stale.items():
        print(f"  {function}: {count} survived, fewer than accepted.py has", flush=True)
    return int(bool(bad or stale))


def function_of(name: str) -> str:
    """The function that the change of this name is in; ``module`` if it is in none."""
    match = re.match(r"[\w.]+", name)
    assert match is not None, name
    return match[0]


def unaccounted(
    survived: Sequence[tuple[str, int]], known: Mapping[str, Mapping[str, int]]
) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """All survivors of functions with more than are ``known``, and the numbers that fell."""
    counts = Counter(function_of(name) for name, _ in survived)
    accepted = {function: sum(reasons.values()) for function, reasons in known.items()}
    bad = [one for one in survived if counts[f := function_of(one[0])] > accepted.get(f, 0)]
    return bad, {f: counts[f] for f, count in accepted.items() if counts[f] < count}


def _path(module: str) -> Path:
    spec = importlib.util.find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class Watch:
    """Which functions each test calls, by their first lines, and how long it takes."""

    def __init__(self) -> None:
        self.called = set[int]()
        self.reported: dict[str, tuple[float, list[int]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        self.called.clear()
        try:
            return (yield)
        finally:
            self.reported[item.nodeid] = time.monotonic() - began, sorted(self.called)


class Trial:
    """One module against its tests, all of which pass as it is."""

    def __init__(self, module: str, path: Path, tests: Sequence[str]) -> None:
        self._module, self._paths = module, tests
        reading, writing = os.pipe()
        if not (child := os.fork()):
            watch = Watch()
            telling = Changed(
                module, with_calls_reported(path.read_text()), **{TELL: watch.called.add}
            )
            sys.meta_path.insert(0, telling)
            _silence()
            status = pytest.main([*_ARGUMENTS, *tests], plugins=[watch])
            with os.fdopen(writing, "w") as reported:
                json.dump(watch.reported, reported)
            os._exit(int(status))
        os.close(writing)
        with os.fdopen(reading) as reported:
            self._tests: dict[str, tuple[float, list[int]]] = json.load(reported)
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"the tests of {module} fail as it is; see to that first")

    def survivors(self, made: Sequence[Change], workers: int) -> Iterator[Change]:
        """Those that no test failed of."""
        left = self._left_in_place(made, workers)
        for position in unnoticed(left, workers, lambda position: self._begun(made[position])):
            yield made[position]

    def _left_in_place(self, made: Sequence[Change], workers: int) -> list[int]:
        """The positions of those that must be tried in processes of their own."""
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            _silence()
            tried = InPlace(self._module, made, self._about, self._limited, workers, writing)
            pytest.main([*_ARGUMENTS, *self._paths], plugins=[tried])
            os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as reported:
            left: list[int] = json.load(reported)
        os.waitpid(child, 0)
        return left

    def _about(self, change: Change) -> Sequence[str]:
        """The tests that call what is changed, the fastest first; all, of what the import does."""
        reported = self._tests
        about = [test for test in reported if change.function in reported[test][1]]
        return sorted(about or reported, key=lambda test: reported[test][0])

    def _begun(self, change: Change) -> int:
        """A process that tries it, and ends with 0 where nothing failed."""
        sys.stdout.flush()
        if child := os.fork():
            return child
        status, tests = 1, self._about(change)
        try:
            _silence()
            self._limited(tests)
            sys.meta_path.insert(0, Changed(self._module, change.tree()))
            status = int(pytest.main([*_ARGUMENTS, *tests]))
        finally:
            os._exit(status)

    def _limited(self, tests: Sequence[str]) -> None:
        """End this process where it takes longer or more than they may."""
        limit = _SECONDS + _TIMES * sum(self._tests[test][0] for test in tests)
        signal.setitimer(signal.ITIMER_PROF, limit)  # whose signal ends the process
        signal.setitimer(signal.ITIMER_REAL, _BUSY * limit)
        pages = int(Path("/proc/self/statm").read_text().split()[0])  # libraries map some GB
        most = pages * resource.getpagesize() + _BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)


if __name__ == "__main__":
    raise SystemExit(main())
