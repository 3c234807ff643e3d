"""``python -m gpu [NAME...]`` from tests/: scenarios for a real GPU, against PyTorch's own account.

Needs a GPU, PyTorch and nothing else: no pytest, so that it runs on a machine lent for minutes.
Prints a line a scenario, then what disagrees; exit 1 where anything does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from gpu import ranks
from support import scenarios
from support.case import Case
from support.comparison import findings
from support.truth import seconds

FOLDER = Path(__file__).parent / "scenarios"


def main(names: list[str]) -> int:
    there, wrong = _gpus(), 0
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        if names and path.stem not in names:
            continue
        scenario = scenarios.declared(path)
        if scenario.ranks > there:
            print(f"{path.stem:<28} skipped: it needs {scenario.ranks} GPUs, {there} here")
            continue
        with tempfile.TemporaryDirectory() as place:
            cases = ranks.run(scenario, Path(place))
        wrong += sum(map(_print_case, cases))
    return 1 if wrong else 0


def _print_case(case: Case) -> int:
    """Print a case; how many sentences are wrong with it."""
    found, counts = findings(case), case.watched.slot.compile
    rank = case.scenario.env.get("RANK")
    print(
        f"{case.scenario.name + (f' rank {rank}' if rank else ''):<28}"
        f" {'ok' if not found else 'WRONG':<6}"
        f" compilations {counts.compilations} graphs {counts.graphs}"
        f" recompiles {sum(counts.recompiles_by_category)}"
        f" compiled {sum(counts.phase_ns) / 1e9:.2f} s"
        f" (by PyTorch {seconds(case.intervals):.2f} s)"
        f" warm-ups {counts.warmups}, first took {counts.first_warmup.steps} steps",
        flush=True,
    )
    for sentence in found:
        print(f"    {sentence[:900]}", flush=True)
    return len(found)


def _gpus() -> int:
    """Runs in a process of its own: this one must not hold the GPUs that it measures."""
    code = "import torch; print(torch.cuda.device_count())"
    return int(subprocess.check_output([sys.executable, "-c", code]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
