"""``warmwatch doctor --report FILE``: what a maintainer needs to reproduce a problem, as Markdown.

The record is reduced to numbers, booleans and words of closed lists. Names that the user chose
(runs, functions, files, hosts, users, directories) are left out.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from warmwatch_monitor.doctor.checks import Finding

LIBRARIES = (
    *("warmwatch", "torch", "triton", "nvidia-ml-py", "psutil", "prometheus-client", "fastapi"),
    *("uvicorn", "msgspec", "click", "rich", "textual"),
)
# keys of `/status` whose strings come from closed lists
CLOSED_LISTS = frozenset(
    {
        *("cache", "category", "condition", "dtype", "kind", "missing", "phase", "precompiled"),
        *("signal", "source", "state", "warm_by"),
    }
)


def issue_report(
    installation: Sequence[Finding], hooks: Sequence[Finding], answer: dict[str, Any] | None
) -> str:
    """The report as Markdown: versions, findings, and the reduced ``/status`` document.

    Args:
        installation: the findings of ``doctor``.
        hooks: the findings of ``doctor --hooks``.
        answer: the ``/status`` document; ``None`` if it could not be read.
    """
    records = (
        "could not be read"
        if answer is None
        else f"```json\n{json.dumps(reduced(answer), indent=1)}\n```"
    )
    stand_ins = _names(answer or {})
    text = "\n\n".join(
        (
            "# Warmwatch: report for an issue",
            "## Versions",
            "\n".join(f"- {line}" for line in _versions()),
            "## Installation",
            _listed(installation, stand_ins),
            "## Hooks against this PyTorch",
            _listed(hooks, stand_ins),
            "## Runs, without names",
            records,
        )
    )
    return text + "\n"


def reduced(value: Any, key: str = "") -> Any:
    """``value`` of a ``/status`` document without strings, except those of closed lists."""
    if isinstance(value, dict):
        items = {name: reduced(one, name) for name, one in value.items()}
        return {name: one for name, one in items.items() if one not in (None, [], {})}
    if isinstance(value, list):
        return [one for one in (reduced(one, key) for one in value) if one not in (None, [], {})]
    if isinstance(value, str):
        return value if key in CLOSED_LISTS else None
    return value


def _versions() -> list[str]:
    lines = [f"Python {platform.python_version()} on {platform.system()} {platform.release()}"]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name}: not installed")
    return lines


def _listed(findings: Sequence[Finding], stand_ins: dict[str, str]) -> str:
    longest_first = sorted(stand_ins, key=len, reverse=True)
    # whole names only: a run that is called "a" leaves other words as they are
    names = re.compile(rf"(?<![^\W_])({'|'.join(map(re.escape, longest_first))})(?![^\W_])")

    def hidden(text: str) -> str:
        return names.sub(lambda match: stand_ins[match[0]], text) if stand_ins else text

    return "\n".join(f"- {one.mark.value}: {hidden(one.what)}" for one in findings) or "- nothing"


def _names(answer: dict[str, Any]) -> dict[str, str]:
    """Names that a finding may mention, and what the report has in their place."""
    runs = answer.get("runs", [])
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises for a user without one
    return ({home: "~"} if home.count("/") and home != "/" else {}) | {
        run["name"]: f"run-{number}" for number, run in enumerate(runs, 1) if run.get("name")
    }
