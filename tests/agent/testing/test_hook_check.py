"""``hook_check``: the reported result of each hook."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from warmwatch.testing import hook_check


@pytest.mark.parametrize(
    ("missing", "result"), [((), "wrong"), (("compilations",), "skipped"), (("events",), "wrong")]
)
def test_figures_that_need_an_absent_hook_are_skipped_and_not_wrong(
    capsys: pytest.CaptureFixture[str], missing: tuple[str, ...], result: str
) -> None:
    check: Any = SimpleNamespace(missing=missing, hooks=("callbacks", "recompile_reasons"))
    report = hook_check._Report(check)
    report.add("recompile_reasons", "ok", "0, as PyTorch recorded")
    report.add("recompile_reasons", "wrong", "the agent has 0, PyTorch 1")
    report.add("callbacks", "wrong", "the agent has False, PyTorch True")
    report.write()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = {
        "recompile_reasons": result,
        "callbacks": "wrong",
        **dict.fromkeys(missing, "absent"),
    }
    assert {line["hook"]: line["result"] for line in lines} == expected
    assert not report.fine
