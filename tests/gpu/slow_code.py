"""``python -m gpu.slow_code [KIND...]`` from tests/: ``inefficiencies`` of ``/status`` against the
driver's count of spilled registers, CUDA's captures, and the allocator's peak.

Prints what was reported and the truth; exit 1 if they differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).with_name("trainings") / "slow_code.py"
WARMWATCH = (sys.executable, "-m", "warmwatch_monitor")
_CLOSE = 0.5  # of a time: PyTorch and Triton measure with caches in different states


def spills(found: list[dict[str, Any]], truth: dict[str, Any]) -> bool:
    """The plain kernel's registers, and those of the faster configuration of the tuned one."""
    by_warps = truth["by_warps"]
    plain = [one for one in found if one["called"].startswith("softmax")]
    tuned = [one for one in found if one["called"].startswith("tuned_softmax")]
    faster = min((by_warps["1"], by_warps["2"]), key=lambda one: one["seconds"])
    return (
        [one["count"] for one in plain] == [by_warps["1"]["registers"]]
        and [one["count"] for one in tuned] == [faster["registers"]]
        and abs(tuned[0]["seconds"] / faster["seconds"] - 1) < _CLOSE
        and plain[0]["seconds"] is None
    )


def sizes(found: list[dict[str, Any]], truth: dict[str, Any]) -> bool:
    """As many sizes as the training had, and as many recordings as captures."""
    recordings = f"{truth['captures']} recordings"
    return [one["count"] for one in found] == [truth["sizes"]] and recordings in found[0]["words"]


def new_sizes(found: list[dict[str, Any]], truth: dict[str, Any]) -> bool:
    """Each step is named, and no recording."""
    by_kind = {one.get("kind", "thrashing"): one for one in found}
    again = f"begin again in every step ({truth['sizes']}th time)"
    return (
        again in by_kind["thrashing"]["words"]
        and by_kind["cudagraph_sizes"]["count"] == truth["sizes"]
        and "none recorded" in by_kind["cudagraph_sizes"]["words"]
    )


def flex(found: list[dict[str, Any]], truth: dict[str, Any]) -> bool:
    """The bytes of the scores, which the allocator's peak exceeds."""
    return [one["bytes"] for one in found] == [truth["scores"]] and (
        truth["scores"] <= truth["unfused"]["peak"]
    )


KINDS = {
    "spills": ("register_spills", spills),
    "sizes": ("cudagraph_sizes", sizes),
    "new_sizes": ("cudagraph_sizes", new_sizes),
    "flex": ("flex_attention", flex),
}


def main(names: list[str]) -> int:
    """Run the kinds named, else all."""
    wrong = 0
    for name, (kind, is_right) in KINDS.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as place:
            rank, truth = _trained(name, Path(place))
        found = [one for one in rank["compile"]["inefficiencies"] if one["kind"] == kind]
        found += [one for one in rank["conditions"] if one["condition"] == "thrashing"]
        right = is_right(found, truth) and not rank["agent_errors"]
        print(f"{name:<8} {'ok' if right else 'WRONG'} {json.dumps(found)}", flush=True)
        print(f"    truth: {json.dumps(truth)}", flush=True)
        wrong += not right
    return 1 if wrong else 0


def _trained(name: str, place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rank as ``warmwatch status`` reports it, and the training's own account."""
    records, file = place / "records", place / "truth"
    records.mkdir()
    env = {**os.environ, "WARMWATCH_DIR": str(records), "WARMWATCH_RUN": name}
    env |= {
        "WARMWATCH_STATE": str(place / "state"),
        "TORCHINDUCTOR_CACHE_DIR": str(place / "cache"),
    }
    subprocess.run([sys.executable, str(TRAINING), name, str(file)], env=env, check=True)
    answer = subprocess.check_output([*WARMWATCH, "status", "--json"], env=env, text=True)
    return json.loads(answer)["runs"][0]["ranks"][0], json.loads(file.read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
