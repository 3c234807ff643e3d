"""Which frames are the user's, and where an exception or a call came from in the user's code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest

from warmwatch.shared.user_code import innermost, is_library, nearest, of_code, of_value


@pytest.mark.parametrize(
    ("file", "module", "expected"),
    [
        ("/home/a/train.py", "__main__", False),
        ("/home/a/torch_models/net.py", "torch_models.net", False),
        ("<stdin>", "__main__", False),
        ("/tmp/ipykernel_7/1.py", "__main__", False),
        ("/env/lib/python3.12/site-packages/transformers/utils/generic.py", "transformers", True),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", "yaml", True),
        ("/src/pytorch/torch/nn/modules/module.py", "torch.nn.modules.module", True),
        ("/src/warmwatch/agent/warmwatch/steps/steps.py", "warmwatch.steps.steps", True),
        (json.__file__, "json", True),
        ("<frozen runpy>", "runpy", True),
        ("<eval_with_key>.3", None, True),
        ("<@beartype(__main__.scale) at 0x7f8f30dfca40>", "__main__", True),
        ("/home/a/train.py", None, False),
        ("/home/a/train.py", 3, False),
    ],
)
def test_library_code_is_recognized_by_its_path(
    file: str, module: object, *, expected: bool
) -> None:
    assert is_library(file, module) is expected


def test_the_nearest_frame_is_the_one_that_called_the_library() -> None:
    found: list[object] = []

    class Spying(json.JSONEncoder):
        def default(self, _: object) -> object:
            caller: FrameType | None = sys._getframe(1)
            found.append(nearest(caller))
            return 0

    json.dumps(object(), cls=Spying)
    (place,) = found
    assert isinstance(place, dict)
    assert place["file"] == Path(__file__).name
    assert place["name"] == "test_the_nearest_frame_is_the_one_that_called_the_library"


def test_only_library_code_gives_none() -> None:
    assert nearest(None) is None
    assert innermost(None) is None
    with pytest.raises(ValueError, match="line 1") as raised:
        json.loads("x")
    assert raised.value.__traceback__ is not None
    assert innermost(raised.value.__traceback__.tb_next) is None
    assert innermost(raised.value.__traceback__) is not None


# Short hashes of code and of settings: what changes them and what does not


FORWARD = """
def forward(self, x):
    if "patient 7" in self.names: x = x * 2
    for scale in (0.5, 2): x = x * scale
    return [one for one in x if one in {"a", "b", 3}]
"""


def code_of(source: str, name: str = "forward") -> CodeType:
    compiled = compile(source, "/home/me/train.py", "exec")
    found = (one for one in compiled.co_consts if isinstance(one, CodeType))
    return next(one for one in found if one.co_name == name)


def test_code_is_the_same_in_every_process() -> None:
    """Whatever the order of sets in that process."""
    script = (
        "import sys; sys.path[:0] = ['agent', 'tests/agent/shared'];"
        "import test_user_code as t; print(t.of_code(t.code_of(t.FORWARD)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert found == {of_code(code_of(FORWARD))}
    assert len(found.pop()) == 12


SAME: dict[str, Callable[[str], str]] = {
    "lines": lambda source: "\n\n\n" + source.replace(":\n", ":  # why\n\n"),
    "a text": lambda source: source.replace("patient 7", "patient 8"),
}


@pytest.mark.parametrize("change", SAME)
def test_line_numbers_comments_and_strings_do_not_change_the_hash(change: str) -> None:
    assert of_code(code_of(SAME[change](FORWARD))) == of_code(code_of(FORWARD))


def test_different_settings_have_different_hashes_without_any_repr() -> None:
    class Secret:
        def __repr__(self) -> str:
            raise AssertionError("its repr was called")

    values = [True, 1, 1.0, None, "a", b"a", (1, 2), [1, 2], {"a": 1}, {"a": 2}, Secret, of_code]
    hashes = [of_value(value) for value in values]
    assert len(set(hashes)) == len(values)
    assert {len(one) for one in hashes} == {6}
    assert of_value(Secret()) == of_value(Secret())
    assert of_value({"a": 1, "b": 2}) == of_value({"b": 2, "a": 1})
    assert of_value(Secret()) == of_value([Secret()][0])
    endless: list[object] = []
    endless.append(endless)
    assert of_value(endless)


def test_a_very_long_integer_has_a_hash() -> None:
    long = "0x" + "f" * 6_000
    table = FORWARD.replace("0.5", long)
    assert of_code(code_of(table)) == of_code(code_of(table))
    assert of_code(code_of(table)) != of_code(code_of(table.replace(long, long[:-1])))
    assert of_value({"mask": int(long, 16)}) != of_value({"mask": int(long[:-1], 16)})


def test_an_unbounded_nesting_is_read_to_a_limit() -> None:
    """The training waits for the hash, and this nesting has no end."""
    table: list[object] = [1]
    nested: dict[str, object] = {"a": 1}
    for _ in range(14):
        table = [table] * 100
        nested = {str(number): nested for number in range(100)}
    assert of_value(table) != of_value(nested)
