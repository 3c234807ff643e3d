"""Which frames are the user's, and where an exception or a call came from in the user's code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import pytest

from warmwatch.shared.user_code import innermost, is_library, nearest


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
