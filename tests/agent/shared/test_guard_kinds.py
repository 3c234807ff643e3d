"""The table of guard kinds: complete for the installed PyTorch, and consistent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warmwatch.hooks.dynamo.recompile_reasons import category_of
from warmwatch.hooks.redaction import recompile
from warmwatch.shared.advice import advice
from warmwatch.shared.guard_kinds import KINDS, WORDED_THERE, Kind, kind_of
from warmwatch.shared.guard_remedies import guard_of
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import REASONS

ALL = [pytest.param(kind, id=kind.example[:40]) for kind in KINDS]


@pytest.mark.parametrize("kind", ALL)
def test_the_example_of_a_kind_has_its_category_words_and_remedy(kind: Kind) -> None:
    """As the hook sees it, and as the monitor does once it is redacted."""
    reason = f"0/0: {kind.example}"
    redacted = recompile(reason)
    assert kind.category in REASONS
    for text in (reason, redacted):
        found = kind_of(guard_of(text))
        assert found is not None
        assert found[0] is kind
        assert category_of(text) == kind.category
    words = plain(redacted, kind.category)
    assert words is not None
    assert "___" not in words
    assert "{" not in words
    assert advice(kind.category, "forward", redacted) == (
        kind.remedy or advice(kind.category, "forward")
    )
    assert kind.remedy is None or kind.remedy.endswith(".")


def test_every_guard_of_the_installed_pytorch_is_in_the_table() -> None:
    guards = pytest.importorskip("torch._dynamo.guards")
    native = pytest.importorskip("torch._C._dynamo.guards")
    methods = re.findall(r"^    def ([A-Z][A-Z_]+)\(", Path(guards.__file__).read_text(), re.M)
    leaves = [name for name in dir(native) if re.fullmatch(r"[A-Z][A-Z_]+", name)]
    known = {name for kind in KINDS for name in kind.guards} | WORDED_THERE | _NATIVE
    assert len(methods) > 30
    assert set(methods) | set(leaves) <= known


# Names of guards in C++ whose texts are those of the guards that install them.
_NATIVE = {
    *("LENGTH_CHECK", "DICT_LENGTH", "TRUE_MATCH", "FALSE_MATCH", "NOT_NONE", "NO_HASATTR"),
    *("FLOAT_IS_NAN", "COMPLEX_IS_NAN", "LAMBDA_GUARD", "SYMBOLIC_SHAPE_GUARD"),
    *("OBJECT_ALIASING", "MAPPING_KEYS_MATCH", "DUAL_LEVEL_MATCH"),
}
