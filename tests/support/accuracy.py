"""``python -m support.accuracy`` (in ``tests/``) runs all scenarios and writes accuracy.md.

The table holds what came out, good or bad; a scenario that disagrees with the truth is listed with
its disagreements, and the command then ends with 1.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support import case as cases
from support import comparison, features, scenarios, truth
from support.case import Case
from support.scenarios import Scenario
from support.trainings import ROOT

DOCUMENT = ROOT / "docs" / "explanation" / "accuracy.md"
COMMAND = "cd tests && PYTHONPATH=. python -m support.accuracy"
WORKERS = 2
# What `support.public_reports` and `support.estimates` write from here on is left as it is.
REPORTS, ESTIMATES = "<!-- public reports -->", "<!-- estimates -->"
_NEAR = 0.02  # of the ratio of two compile times that count as equal
COLUMNS = (
    "scenario",
    "steps",
    "compilations",
    "graphs",
    "recompiles",
    "graph breaks",
    "false warm",
    "late warm",
    "compile seconds",
    "phases",
    "guest",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A scenario's line of the table, and what is wrong with it."""

    scenario: Scenario
    cells: tuple[str, ...]
    torch: str
    findings: tuple[str, ...]


def measure(scenario: Scenario) -> Line:
    """Run one scenario and compare it."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(scenario, *scenarios.run(scenario, Path(folder)))
    return Line(
        scenario=scenario,
        cells=cells(case),
        torch=case.watched.account["torch"],
        findings=tuple(comparison.findings(case)),
    )


def cells(case: Case) -> tuple[str, ...]:
    """The agent's and the true numbers."""
    counts, account = case.watched.slot.compile, case.watched.account
    whole = truth.seconds(case.activities)
    refused = comparison.refused(case)  # PyTorch's records of them hold no compilation
    compiled = len(account["compilations"]) + len(account["beside"]) - refused
    return (
        f"`{case.scenario.name}`",
        _both(case.watched.slot.steps.steps, len(case.marks)),
        _both(sum(counts.compilations), compiled),
        _counted(counts.graphs, account["graphs"], case.reference.trace["graphs"]),
        _both(
            sum(counts.recompiles_by_category) + counts.plain[0],
            len(case.recompiles) - refused,
        ),
        _counted(counts.graph_breaks, account["breaks"], case.reference.trace["breaks"]),
        str(len(cases.false_warm(case))),
        _late_steps(case),
        _ratio(whole, truth.seconds(case.intervals)),
        _ratio(sum(counts.phase_ns) / 1e9, whole),
        _guest(case),
    )


def _counted(agent: int, counter: int, trace: int) -> str:
    """PyTorch's counter is the truth; where its trace shows another number, that too."""
    return _both(agent, counter) + (f" ({trace} in the trace)" if trace != counter else "")


def _both(agent: int, truth: int) -> str:
    """One number if they agree, else ``agent / truth``."""
    return str(agent) if agent == truth else f"{agent} / {truth}"


def _guest(case: Case) -> str:
    return "differs" if any(comparison.guest(case)) else "same"


def _late_steps(case: Case) -> str:
    """Steps by which each warm-up was noticed late."""
    seen, expected = cases.seen_warm_ups(case), cases.expected_warm_ups(case)
    if len(seen) != len(expected):
        return f"{len(seen)} of {len(expected)} warm-ups"
    return " ".join(str(a.step - b.step) for a, b in zip(seen, expected, strict=True)) or "-"


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def agrees(cells: tuple[str, ...]) -> bool:
    """Whether a row has nothing to look at: equal counts, never false or late, the same guest."""
    *counts, false, late, seconds, phases, guest = cells[1:]
    return (
        all(one.isdigit() for one in counts)
        and (false, phases, guest) in {("0", "1.00", "same"), ("0", "-", "same")}
        and not late.strip("-0 ")
        and (seconds == "-" or abs(float(seconds) - 1) <= _NEAR)
    )


def document(lines: list[Line]) -> str:
    """The page."""
    (torch,) = {line.torch for line in lines}
    equal = [line.cells[0] for line in lines if agrees(line.cells)]
    rows = ["| " + " | ".join(line.cells) + " |" for line in lines if not agrees(line.cells)]
    limits = [f"- `{one.scenario.name}`: {one.scenario.limits}" for one in lines]
    notes = [
        f"- `{line.scenario.name}`, {check}: {why}"
        for line in lines
        for check, why in line.scenario.cannot_know.items()
    ]
    wrong = [f"- `{line.scenario.name}` {found}" for line in lines for found in line.findings]
    header = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    return "\n".join(
        [
            f"<!-- Written by `{COMMAND}`; do not edit. -->",
            *_INTRODUCTION.format(
                torch=torch, machine=f"{platform.machine()}, CPU", python=platform.python_version()
            ).splitlines(),
            _AGREE.format(equal=len(equal), all=len(lines)),
            ", ".join(equal) + ".",
            "",
            "The others:",
            "",
            *header,
            *rows,
            "",
            "## Known differences",
            "",
            *(line for line, one in zip(limits, lines, strict=True) if one.scenario.limits),
            "",
            *(["## What PyTorch's own account cannot decide", "", *notes, ""] if notes else []),
            "## Disagreements",
            "",
            *(wrong or ["None."]),
            "",
            *_FEATURES.splitlines(),
            *features.listing(),
            "",
        ]
    )


_INTRODUCTION = """
# How right the verdict is

How often the verdict, the counts and the figures agree with PyTorch's own account of the same
training: small trainings on a CPU, [loops on a GPU](#on-a-gpu), [every feature of the
compiler](#compiler-features), [public reports](#public-reports) and [the estimate of the time
left](#how-right-the-estimate-of-the-time-left-is).

## Scenarios

Each is a real training (`tests/process/scenarios/`). The agent records it and a monitor polls it 20
times a second. PyTorch's account shares no code with the agent: its compilation metrics, its
structured trace from a second run without the agent, and the training's own marks of its steps.
Compared are:

- the numbers of steps, compilations, graphs, recompiles and graph breaks;
- *false warm*: polls at which the monitor reported warm while PyTorch compiled, or too early;
- *late warm*: for each warm-up, how many steps late the monitor noticed its end;
- *compile seconds*: the agent's, divided by PyTorch's; *phases*: their sum, divided by these;
- *guest*: whether losses, warnings, compilations, random state and output are bit for bit the
  same without the agent;
- at each poll, each claim of the sentence: the length of a step (within 10 % of the real ones, and
  2 ms between the clocks), "nothing compiles", the age of the last step, and `silent`. A wrong one
  is a [disagreement](#disagreements).

PyTorch {torch}, Python {python}, {machine}; [other
versions](../reference/pytorch-versions.md#what-was-run).

"""

_AGREE = """\
In {equal} of {all} scenarios the numbers are equal, warm was never false or late, compile seconds
differ by 2 % at most, and the training is the same:
"""


_FEATURES = """\
## On a GPU

Each scenario reads its loss after every step, which synchronizes a GPU. Loops that let the host
run ahead of the GPU were compared with CUDA events on an H100 (PyTorch 2.11.0).
[Speed](../reference/speed.md#with-gpus) has the known limits.

- A loop that reads its loss every 50 steps: within 5 % of the events' mean in 28 of 28 polls. When
  its step changes from 7 to 48 ms and back: within 10 %, but for 3 s and 4.5 s after the changes.
- One that never waits, with such changes: within 10 % from 2 s after each change on; `slower`, with
  the right step, after 22 s.
- A batch that grows three times (`python -m gpu growing_batch`): no disagreement in one run; in
  another 1.4 times as long as medians of 16 steps, for 17 steps.
- Recorded steps of loops that read their loss every 10, every 64, every 100 steps and never,
  replayed: within 10 % of the GPU's speed in 99.9, 100, 99.3 and 100 % of the polls.

## Compiler features

Each feature was compared with PyTorch's own records or the script's own marks, with PyTorch 2.6,
2.11, 2.13 and 2.15 or the versions in brackets ([when](../reference/pytorch-versions.md)).
`tests/support/features.txt` names the scenario or the test that proves it; *by its code* marks what
was only read in PyTorch's code. *Equal*: counts, phases and states are PyTorch's. What cannot be
known is absent, never 0. `python -m gpu` checks what needs a GPU.
"""


def listed(page: str) -> set[str]:
    """The scenarios of a page."""
    table = page.partition("## Known differences\n")[0]
    lines = [line for line in table.splitlines() if line.startswith(("`", "| `"))]
    return {
        name
        for line in lines
        for name in re.findall(r"`(\w+)`", line if line[0] == "`" else line.split("|")[1])
    }


def main() -> int:
    """Run all, write the page; 1 where something disagrees."""
    lines = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for line in pool.map(measure, scenarios.every()):
            lines.append(line)
            print(f"{line.scenario.name}: {len(line.findings)} disagreements", flush=True)
    DOCUMENT.parent.mkdir(exist_ok=True)
    page = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    begins = [page.index(mark) for mark in (REPORTS, ESTIMATES) if mark in page]
    later = f"\n{page[min(begins) :]}" if begins else ""
    DOCUMENT.write_text(document(lines) + later)
    for line in lines:
        for found in line.findings:
            print(f"{line.scenario.name}: {found}")
    return any(line.findings for line in lines)


if __name__ == "__main__":
    sys.exit(main())
