"""The compiler features that were checked, for accuracy.md: what came out, and what proves it.

A row names the scenarios and tests whose truth is PyTorch's own records or the script's own marks.
``test_scenarios.py`` checks that all of them exist, and that each scenario is in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EQUAL = "equal"
# Scenarios that came after the run with all five versions, see reference/pytorch-versions.md.
_LATER = {"compiled_in_vain", "activity", "save_and_evaluate", "always_failing", "slowdown"}
_ALL, _ONE = "2.6 to 2.15", "2.13"
_SOME = {"fx_async": "2.11 to 2.15", "mark_dynamic": "2.11 to 2.15"}  # others cannot run them

# A line: feature | result (`=`: counts, phases and states are PyTorch's) | what proves it, and
# where its tests ran on more versions, | those.
_ROWS = Path(__file__).with_name("features.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One row; ``group`` is set on the heading of a group alone."""

    group: str = ""
    name: str = ""
    result: str = ""
    proof: tuple[str, ...] = ()
    ran: str = ""

    @property
    def versions(self) -> str:
        """The versions of PyTorch with which the proof ran."""
        if self.ran:
            return self.ran
        is_scenario = all(not one.startswith("test_") for one in self.proof)
        if not is_scenario or _LATER & set(self.proof):
            return _ONE
        return next((_SOME[one] for one in self.proof if one in _SOME), _ALL)


def features() -> Iterator[Feature]:
    """All rows, in order."""
    for line in _ROWS.read_text().splitlines():
        if line.startswith("**") and "|" not in line:
            yield Feature(group=line)
            continue
        name, result, proof, *ran = (part.strip() for part in line.split("|"))
        words = result.replace("=", EQUAL, 1) if result.startswith("=") else result
        yield Feature(
            name=name,
            result=words,
            proof=tuple(one.strip() for one in proof.split(",") if one.strip()),
            ran="".join(ran),
        )


def table() -> list[str]:
    """The rows in Markdown."""
    lines = ["| feature | result | PyTorch | proof |", "|---|---|---|---|"]
    for one in features():
        proof = ", ".join(f"`{name}`" for name in one.proof)
        versions = one.versions if one.proof else ""
        lines.append(f"| {one.group or one.name} | {one.result} | {versions} | {proof} |")
    return lines
