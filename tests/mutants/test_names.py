"""The name of a change, and which survivors are accepted."""

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


def test_no_more_changes_of_a_function_survive_than_have_a_reason() -> None:
    survived = [("once: 0 -> 1", 3), ("twice(at): 0 -> 1", 5), ("twice: a -> b", 8), ("new: c", 9)]
    known = {"once": {"why": 1}, "twice": {"why": 1}, "fewer": {"why": 1, "and why": 2}}
    assert unaccounted(survived, known) == (survived[1:], {"fewer": 0})


@pytest.mark.parametrize("module", TARGETS)
def test_a_target_is_a_module_with_its_part_and_has_tests(module: str) -> None:
    part = PARTS.get(module, "").rstrip(".")
    assert not part or f"\nclass {part}" in _path(module).read_text()
    assert [test for test in TARGETS[module] if not (_TESTS / test).exists()] == []


def test_only_targets_have_a_part_or_accepted_survivors() -> None:
    assert {*ACCEPTED, *PARTS} <= {*TARGETS}
