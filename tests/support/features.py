"""The compiler features that were checked, for accuracy.md: the result, the versions, the proof.

A row names the scenarios and tests whose truth is PyTorch's own records or the script's own marks.
``test_scenarios.py`` checks that all of them exist, and that each scenario is in a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.trainings import ROOT

EQUAL = "equal"
# A line: feature | result (`=`: counts, phases and states are PyTorch's) | what proves it.
_ROWS = Path(__file__).with_name("features.txt")

# What ran with which versions: reference/pytorch-versions.md has dates and results. Add a version
# here when the whole suite passed with it; tests that it cannot run are skipped, and named below.
_SUITE = {"2.6", "2.11", "2.13", "2.15"}
_HOOKS_ALONE = {"2.8", "2.14"}
_LACKS = {
    "fx_async": {"2.6"},
    "mark_dynamic": {"2.6"},
    "threads": {"2.6", "2.11"},
    "test_the_guard_checks_of_a_step_are_measured": {"2.8", "2.14"},  # not run with these
    "test_choices_of_a_real_tuning_are_counted": {"2.6"},
    "test_a_kernel_with_one_launcher_is_reported_when_its_graph_is_compiled": {"2.8", "2.14"},
    "test_a_tuned_kernel_is_reported_with_its_final_launcher": {"2.8", "2.14"},
    "test_cuda_graphs_of_many_sizes_are_named_with_their_time_and_memory": {"2.6"},
    "test_compiled_blocks_are_compiled_under_fsdp2": {"2.6"},
    "test_concurrent_compilations_of_sixteen_threads_are_counted_as_pytorch_counts_them": {"2.11"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One row; ``group`` is set on the heading of a group alone."""

    group: str = ""
    name: str = ""
    result: str = ""
    proof: tuple[str, ...] = ()

    @property
    def tested(self) -> str:
        """With what it passed, in brackets; empty if it is the usual."""
        if not self.proof:
            return " (by its code)"
        return f" ({self.versions})" if self.versions else ""

    @property
    def versions(self) -> str:
        """The versions of PyTorch with which all of the proofs passed; empty if it is the usual
        ones."""
        passed = set.intersection(*map(_versions, self.proof)) if self.proof else _SUITE
        if passed == _SUITE:
            return ""
        return ", ".join(sorted(passed, key=lambda one: int(one.removeprefix("2."))))


def _versions(proof: str) -> set[str]:
    file = proofs().get(proof, "tests/process/test_scenarios.py")
    of_hooks = _HOOKS_ALONE if file.startswith("tests/agent/hooks/") else set()
    return (_SUITE | of_hooks) - _LACKS.get(proof, set())


@cache
def proofs() -> dict[str, str]:
    """The file of each test."""
    return {
        function: str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        for function in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }


def features() -> Iterator[Feature]:
    """All rows, in order."""
    for line in _ROWS.read_text().splitlines():
        if line.startswith("**") and "|" not in line:
            yield Feature(group=line)
            continue
        name, result, proof = (part.strip() for part in line.split("|"))
        words = result.replace("=", EQUAL, 1) if result.startswith("=") else result
        named = tuple(one.strip() for one in proof.split(",") if one.strip())
        yield Feature(name=name, result=words, proof=named)


def listing() -> list[str]:
    """The features in Markdown: of each group those that are equal, then a line for each other."""
    lines: list[str] = []
    groups: dict[str, list[Feature]] = {}
    rows: list[Feature] = []
    for one in features():
        if one.group:
            rows = groups[one.group] = []
        else:
            rows.append(one)
    for group, rows in groups.items():
        equal = [f"{one.name}{one.tested}" for one in rows if one.result == EQUAL]
        lines += ["", group, "", *([f"- Equal: {'; '.join(equal)}."] if equal else [])]
        lines += [f"- {one.name}: {one.result}{one.tested}" for one in rows if one.result != EQUAL]
    return lines
