"""``warmwatch doctor --report FILE``: what a maintainer needs to reproduce a problem, as Markdown.

The record is reduced to counts, times, sizes, booleans and words of closed lists. Numbers that a
guard compared, and names that the user chose (runs, functions, files, hosts, directories), are
left out.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from warmwatch_monitor.commands.doctor.checks import Finding

LIBRARIES = (
    *("warmwatch", "torch", "triton", "nvidia-ml-py", "psutil", "prometheus-client"),
    *("starlette", "uvicorn", "msgspec", "click", "rich", "textual"),
)
# keys of `/status` whose strings come from closed lists
CLOSED_LISTS = frozenset(
    {
        *("cache", "category", "condition", "dtype", "kind", "missing", "phase", "precompiled"),
        *("signal", "source", "state", "warm_by"),
    }
)
# keys with numbers that a guard of the user's program compared
VALUES = frozenset({"values", "smallest", "largest"})
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# of a path only the first folder stays: later ones name users, projects and runs
_PATH = re.compile(r"(?<![\w.:/])(~|/[\w.-]+)/[^\s,;:'\"()]+")


def issue_report(
    installation: Sequence[Finding],
    hooks: Sequence[Finding],
    answer: dict[str, Any] | None,
    host: str,
) -> str:
    """The report as Markdown: versions, findings, and the reduced ``/status`` document.

    Args:
        installation: the findings of ``doctor``.
        hooks: the findings of ``doctor --hooks``.
        answer: the ``/status`` document; ``None`` if it could not be read.
        host: where a daemon was looked for.
    """
    records = (
        "could not be read"
        if answer is None
        else f"```json\n{json.dumps(reduced(answer), indent=1)}\n```"
    )
    stand_ins = {} if host in _LOOPBACK else {host: "HOST"}
    for number, run in enumerate((answer or {}).get("runs", ()), 1):
        stand_ins[run.get("name", "")] = f"run-{number}"
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
    """``value`` of a ``/status`` document, without what the user's program chose."""
    if isinstance(value, dict):
        items = {name: reduced(item, name) for name, item in value.items() if name not in VALUES}
        return {name: item for name, item in items.items() if item not in (None, [], {})}
    if isinstance(value, list):
        return [
            item for item in (reduced(item, key) for item in value) if item not in (None, [], {})
        ]
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


def _listed(findings: Sequence[Finding], stand_ins: Mapping[str, str]) -> str:
    lines = [f"- {finding.mark.value}: {_hidden(finding, stand_ins)}" for finding in findings]
    return "\n".join(lines) or "- nothing"


def _hidden(finding: Finding, stand_ins: Mapping[str, str]) -> str:
    """What was found, without the user's names and paths."""
    # directories too: in the text, a path ends at a space
    values = {old: new for name in finding.names for old, new in _stand_ins(name).items()}
    values.update(stand_ins)
    longest_first = sorted(filter(None, values), key=len, reverse=True)
    # whole names only: a run that is called "a" leaves other words as they are
    names = re.compile(rf"(?<![^\W_])({'|'.join(map(re.escape, longest_first))})(?![^\W_])")
    text = (
        names.sub(lambda match: values[match[0]], finding.what) if longest_first else finding.what
    )
    return _PATH.sub(r"\1/…", text)


def _stand_ins(name: str) -> dict[str, str]:
    """What the report has instead of a name, or of a directory and those above it."""
    if not name.startswith("/"):
        return {name: "NAME"}
    parts = name.split("/")
    return {"/".join(parts[:end]): f"/{parts[1]}/…" for end in range(3, len(parts) + 1)}
