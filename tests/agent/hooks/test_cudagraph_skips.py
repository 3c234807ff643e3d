"""The hook point of skipped CUDA graphs: found without an import, and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmwatch.hooks.inductor.cudagraph_skips import place_in, will_be_there

STACK = """skipping cudagraphs due to mutated inputs (1 instances). Found from :
   File "/home/alice/train.py", line 31, in <module>
    model(File "x.py", line 1, in fake)
  File "C:\\work\\model.py", line 12, in Net.forward
    seen.add_(inputs)
"""


def test_the_innermost_line_of_the_stack_is_reported_if_there_is_a_stack() -> None:
    assert place_in(STACK) == {"name": "Net.forward", "file": "model.py", "line": 12}
    assert place_in("skipping cudagraphs due to cpu device (primals_1)") == {}
    assert place_in("x" * 1_000_000 + STACK) == {}  # it is not looked at to its end


@pytest.mark.parametrize(
    ("source", "there"),
    [
        ("def log_cudagraph_skip_and_bump_counter(msg):\n    pass\n", True),
        ("def renamed_in_a_later_pytorch(msg):\n    pass\n", False),
        (None, False),
    ],
)
def test_the_source_file_shows_whether_the_hook_point_will_exist(
    tmp_path: Path, source: str | None, there: bool
) -> None:
    if source is not None:
        (tmp_path / "cudagraph_utils.py").write_text(source)
    assert will_be_there([str(tmp_path)]) is there
