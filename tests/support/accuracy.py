"""``python -m support.accuracy`` (in ``tests/``) runs all scenarios and writes accuracy.md.

The table holds what came out, good or bad; a scenario that disagrees with the truth is listed with
its disagreements, and the command then ends with 1.
"""

from __future__ import annotations

import platform
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
        _both(sum(counts.recompiles) + counts.new_instances, len(case.recompiles) - refused),
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


def document(lines: list[Line]) -> str:
    """The page."""
    (torch,) = {line.torch for line in lines}
    rows = ["| " + " | ".join(line.cells) + " |" for line in lines]
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
            *header,
            *rows,
            "",
            "## Known differences",
            "",
            *(line for line, one in zip(limits, lines, strict=True) if one.scenario.limits),
            "",
            "## What PyTorch's own account cannot decide",
            "",
            *(notes or ["Nothing: every check is made of every scenario."]),
            "",
            "## Disagreements",
            "",
            *(wrong or ["None."]),
            "",
            *_FEATURES.splitlines(),
            *features.table(),
            "",
        ]
    )


_INTRODUCTION = """
# How right the verdict is

How often the verdict, the counts and the figures agree with PyTorch's own account of the same
training. *Scenarios* are small trainings on a CPU; then come [loops on a GPU](#on-a-gpu), [every
feature of the compiler](#compiler-features) and [the estimate of the time
left](#how-right-the-estimate-of-the-time-left-is).

## Scenarios

Each row is a real training; `tests/process/scenarios/` has what it does. The agent records it and a
monitor polls it 20 times a second. PyTorch's account shares no code with the agent: its
compilation metrics, its structured trace from a second run without the agent, and the training's
own marks of its steps. A cell has one number where both agree, otherwise *agent / PyTorch*.

- *steps*: marked by the agent, and by the training itself.
- *false warm*: polls at which the monitor reported warm while PyTorch compiled, or too early.
- *late warm*: for each warm-up, how many steps late the monitor noticed its end.
- *compile seconds*: the agent's, divided by PyTorch's.
- *phases*: the sum of the phases, divided by the compile seconds.
- *guest*: whether losses, warnings, compilations, random state and output are bit for bit the
  same without the agent.

At each poll, every claim of the sentence is compared too. A wrong claim is a
[disagreement](#disagreements):

- the length of a step: within 10 % of the medians of the last 16, 32 and 64 real steps, or of
  their means where over an eighth are 1.5 times as long or as short, plus 5 % for a figure of two
  digits and 2 ms between the two clocks, and no shorter than each of the last 16 real steps, once
  these took over 6 s;
- "nothing compiles": against PyTorch's records;
- the age of the last step;
- `silent`: it holds exactly if ten usual steps and 3 s have passed without a step, and nothing
  explains it.

PyTorch {torch}, Python {python}, {machine}; [other
versions](../reference/pytorch-versions.md#what-was-run).

"""


_FEATURES = """\
## On a GPU

Each scenario reads its loss after every step, which synchronizes a GPU. Loops that let the host
run ahead of the GPU were compared with CUDA events on an H100 (PyTorch 2.11.0).
[Speed](../reference/speed.md#with-gpus) has the known limits.

- *reads its loss every 50 steps*: within 5 % of the events' mean (5.98 ms) in 28 of 28 polls.
- *the same, 7 ms a step, 48 ms from 20 s on, 7 ms again from 40 s on*, replayed: within 10 %, but
  for 3 s after the first change and 4.5 s after the second one.
- *never waits, with such changes*: within 10 % from 2 s after each change on; `slower`, with the
  right step, after 22 s. Of two hiccups in a row, a test on a CPU alone.
- *a batch that grows three times (`python -m gpu growing_batch`)*: no disagreement in one run; in
  another 1.4 times as long as medians of 16 steps, for 17 steps. On GPUs the speed is a mean.

Recorded steps of four more loops, replayed at 58 polls a second: the share of polls within 5 and
10 % of the GPU's speed at the time.

| the loop reads its loss | within 5 % | within 10 % |
|---|---|---|
| every 10 steps | 93 % | 99.9 % |
| every 64 steps of 18 ms | 100 % | 100 % |
| every 100 steps | 96 % | 99.3 % |
| never | 100 % | 100 % |

With synthetic step lengths for periods of 2 to 64 steps, the speed was within 10 % at each phase,
from the third period on.

## Compiler features

Each feature was compared with PyTorch's own records or the script's own marks. *Equal*: counts,
phases and states are PyTorch's. What cannot be known is absent, never 0. The proof is a scenario
above or a test; a row without a proof describes what PyTorch's code does. The proofs passed with
PyTorch 2.6, 2.11, 2.13 and 2.15, or with the versions in the row
([when](../reference/pytorch-versions.md)).
`python -m gpu` checks what needs a GPU.

"""


def listed(page: str) -> set[str]:
    """The scenarios in the table of a page."""
    table = page.partition("## Known differences\n")[0]
    return {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}


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
