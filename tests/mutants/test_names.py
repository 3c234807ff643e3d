"""The name of a change, and the meaning of an accepted name."""

from __future__ import annotations

import pytest

from mutants.__main__ import _TESTS, _path, unaccounted
from mutants.accepted import ACCEPTED
from mutants.changes import changes
from mutants.targets import PARTS, TARGETS

DEFAULTS = """
def view(reading, at=0, /, now=0, *, pause=0, since, long=0):
    return at
"""


def test_a_default_is_named_after_its_parameter() -> None:
    named = {change.name for change in changes(DEFAULTS)}
    assert named == {
        *("view(at): 0 -> 1", "view(now): 0 -> 1", "view(pause): 0 -> 1", "view(long): 0 -> 1"),
        "view: return at -> return None",
    }


def test_an_accepted_name_covers_one_change_and_hides_no_other() -> None:
    survived = [("once", 3), ("twice", 5), ("twice", 8), ("not looked at", 9)]
    assert unaccounted(survived, {"once", "twice", "gone"}) == (
        [("twice", 5), ("twice", 8), ("not looked at", 9)],
        {"gone"},
    )


@pytest.mark.parametrize("module", TARGETS)
def test_a_target_is_a_module_with_its_part_and_has_tests(module: str) -> None:
    part = PARTS.get(module, "").rstrip(".")
    assert not part or f"\nclass {part}" in _path(module).read_text()
    assert [test for test in TARGETS[module] if not (_TESTS / test).exists()] == []


def test_only_targets_have_a_part_or_accepted_names() -> None:
    assert {*ACCEPTED, *PARTS} <= {*TARGETS}
