"""Waiting for Dynamo's import next to other import finders, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from support.trainings import environment
from warmwatch.hooks.installation import ImportWatch

# A module stands in for Dynamo: it is the import machinery that is looked at.
BODY = """
import importlib.util, sys, warnings
from warmwatch import _guard
from warmwatch.hooks.installation import ImportWatch
warnings.simplefilter("ignore")
arrived, errors, requested = [], [], []
_guard.connect(lambda where, error: errors.append(f"{where}: {error}"))
watch = ImportWatch({"late": lambda: arrived.append(hasattr(sys.modules["late"], "value"))})
FINDERS
import late
print(late.value, arrived, errors, requested, watch in sys.meta_path)
"""
LEGACY = """
class Old:
    def find_module(self, name, path=None):
        requested.append(name)
"""
FOUND_BY_OLD = """
class Loader:
    def load_module(self, name):
        module = sys.modules[name] = type(sys)(name)
        module.value = "old"
        return module
class Old:
    def find_module(self, name, path=None):
        return Loader() if name == "late" else None
"""
ONCE = """
class Old:
    def find_spec(self, name, path, target=None):
        requested.append(name)
        if len(requested) > 1: raise RuntimeError("requested twice")
"""


def imported(tmp_path: Path, finders: str) -> list[str]:
    (tmp_path / "late.py").write_text("value = 'found'\n")
    done = subprocess.run(
        [sys.executable, "-c", BODY.replace("FINDERS", finders)],
        env=environment(tmp_path / "records"),
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[0].split(maxsplit=1)


@pytest.mark.parametrize("place", [0, 1], ids=["ahead of ours", "behind ours"])
def test_a_legacy_finder_breaks_no_import(tmp_path: Path, place: int) -> None:
    """The hook is called once the module is completely imported."""
    value, rest = imported(tmp_path, f"{LEGACY}watch.start(); sys.meta_path.insert({place}, Old())")
    assert value == "found"
    assert rest.startswith("[True] []")
    assert rest.endswith("False")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself passes it over from 3.12 on")
def test_a_module_found_by_a_legacy_finder_is_imported_as_in_python(tmp_path: Path) -> None:
    value, rest = imported(tmp_path, FOUND_BY_OLD + "sys.meta_path.insert(0, Old()); watch.start()")
    assert value == "old"
    assert "has no exec_module to wrap" in rest


def test_a_finder_before_ours_is_called_once(tmp_path: Path) -> None:
    """Python has called it already: a finder that counts or raises sees the same as without us."""
    value, rest = imported(tmp_path, ONCE + "watch.start(); sys.meta_path.insert(0, Old())")
    assert value == "found"
    assert rest == "[True] [] ['late'] False"


def test_finding_a_module_without_importing_it_does_not_end_the_wait(tmp_path: Path) -> None:
    """Many programs look for Triton before they import it."""
    value, rest = imported(tmp_path, 'watch.start(); importlib.util.find_spec("late")')
    assert (value, rest) == ("found", "[True] [] [] False")


ABSENT = """
class Last:
    def find_spec(self, name, path=None, target=None):
        if name == "late": requested.append(sys.path[-1])
watch.start(); sys.meta_path.append(Last())
before = list(sys.path)
for place in ("/first", "/second"):
    sys.path[:] = [*before[1:], place]  # without the working directory, where it is
    for _ in range(10):
        try: import late
        except ImportError as error: assert "No module named 'late'" in str(error)
sys.path[:] = before
"""


def test_finders_are_called_once_for_a_module_that_stays_absent(tmp_path: Path) -> None:
    """Twice at the first attempt, and again once it is searched elsewhere. Then it is reported."""
    value, rest = imported(tmp_path, ABSENT)
    calls = ["/first"] * 11 + ["/second"] * 11
    assert (value, rest) == ("found", f"[True] [] {calls} False")


LAZY = """
def import_lazily():
    spec = importlib.util.find_spec("late")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules["late"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
class Lazy:
    def find_spec(self, name, path=None, target=None):
        if name != "late": return None
        spec = importlib.machinery.PathFinder.find_spec(name)
        spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec
WAY
watch.check()
assert type(sys.modules["late"]).__name__ == "_LazyModule" and not arrived
"""


@pytest.mark.parametrize(
    "way",
    [
        "import_lazily(); watch.start()",
        "watch.start(); import_lazily()",
        "sys.meta_path.insert(0, Lazy()); watch.start(); import late",
    ],
    ids=["before the watch", "by a program", "by a finder"],
)
def test_a_lazy_module_is_reported_when_it_loads_and_never_loaded(tmp_path: Path, way: str) -> None:
    value, rest = imported(tmp_path, LAZY.replace("WAY", way))
    assert (value, rest) == ("found", "[True] [] [] False")


def test_a_replaced_module_does_not_stop_the_wait_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example a test's stand-in for Triton: not a module, and without its attributes."""
    monkeypatch.setitem(sys.modules, "stand_in", object())  # type: ignore[arg-type]
    arrived: list[str] = []
    names = ("stand_in", "never_imported")
    watch = ImportWatch({name: partial(arrived.append, name) for name in names})
    watch.start()
    try:
        assert (arrived, watch in sys.meta_path) == (["stand_in"], True)
    finally:
        watch.stop()


def test_two_watches_of_one_module_are_both_called(tmp_path: Path) -> None:
    """The agent and pytest's plugin, of which either may have come first."""
    second = """
both = [ImportWatch({"late": lambda: arrived.append(hasattr(sys.modules["late"], "value"))}), watch]
for one in both: one.start()
"""
    value, rest = imported(tmp_path, second)
    assert value == "found"
    assert rest == "[True, True] [] [] False"
