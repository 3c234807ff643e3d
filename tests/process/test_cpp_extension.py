"""``torch.utils.cpp_extension``, with the real C++ compiler: what is built, and what was there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH
from support.trainings import result_of
from warmwatch.shared.record import KINDS, PHASES, Slot

pytestmark = pytest.mark.skipif(
    not (shutil.which("ninja") and shutil.which("g++")), reason="needs ninja and g++"
)
# without PyTorch's headers, which take a minute
BODY = """
import warmwatch
from pathlib import Path
from torch.utils.cpp_extension import load
source = Path("mine.cpp"); made = Path("made"); made.mkdir(exist_ok=True)
if not source.exists(): source.write_text('extern "C" int seven() { return 7; }')
def build(name="mine"):
    load(name, [str(source)], build_directory=str(made), is_python_module=False)
    return warmwatch.state()
"""
EXTENSION = KINDS.index("cpp_extension")


def phases(slot: Slot) -> set[str]:
    return {name for name, ns in zip(PHASES, slot.compile.phase_ns, strict=True) if ns}


def test_building_an_extension_is_compile_activity(records: Path) -> None:
    """Once: a second load in the process does nothing, and tells nothing."""
    result_of(records, f"{BODY}build(); build(); result(None)")
    folder = slots.only(records)
    slot = slots.read(folder)
    (reported,) = [e for e in slots.events(folder) if e["event"] == "compilation"]
    assert (reported["kind"], reported["name"]) == ("cpp_extension", "mine")
    assert (slot.compile.compilations[EXTENSION], slot.compile.begun) == (1, 1)
    assert reported["seconds"] > 0
    assert phases(slot) == {"kernel_compile"}


def test_loading_an_extension_built_elsewhere_is_no_build(records: Path) -> None:
    result_of(records, f"{BODY}build(); result(None)", attach=False)
    result_of(records, f"{BODY}build(); result(None)")
    slot = slots.read(slots.only(records))
    assert (slot.compile.begun, slot.compile.compilations[EXTENSION]) == (1, 0)
    assert phases(slot) == {"cache_load"}


def test_an_extension_that_fails_to_build_raises_and_is_a_failure(records: Path) -> None:
    body = BODY + (
        "source.write_text('no C++')\n"
        "try: build()\n"
        "except RuntimeError as error: result('Error building' in str(error))"
    )
    assert result_of(records, body) is True
    folder = slots.only(records)
    (reported,) = [e for e in slots.events(folder) if e["event"] == "compilation"]
    assert (reported["name"], reported["failure"]) == ("mine", "RuntimeError")
    assert slots.read(folder).compile.failures == 1


def test_waiting_for_another_process_that_builds_it_is_compile_activity(records: Path) -> None:
    """Nobody has built it in the end: up to 2.13 that fails, and 2.15 builds it after the wait."""
    body = BODY + (
        "import fcntl, threading\n"
        "lock = (made / 'lock').open('w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "begun = []\n"
        "def release():\n"
        "    while not warmwatch.is_compiling(): pass\n"
        "    begun.append(Path('made/build.ninja').exists())\n"
        "    fcntl.flock(lock, fcntl.LOCK_UN); Path(lock.name).unlink()\n"
        "thread = threading.Thread(target=release); thread.start()\n"
        "try: build()\n"
        "except (OSError, ImportError): pass\n"
        "thread.join(); result([warmwatch.is_compiling(), *begun])"
    )
    assert result_of(records, body) == [False, False]
    counts = slots.read(slots.only(records)).compile
    built = sum(counts.compilations)
    assert (counts.begun, counts.ended) == (1 + built, 1 + built)
    assert built == (not TORCH.builds_with_baton)
