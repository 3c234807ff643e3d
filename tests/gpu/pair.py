"""``python -m gpu.pair`` from tests/: two ranks in FP8, watched at each poll, with a rival later.

``trainings/pair.py`` under torchrun, and a daemon. While both ranks are at the real speed, another
program takes half of rank 1's GPU for a while. Prints each kind of sentence once, with the clock.
Exits with 1 where "compiling for" runs backwards, a run is warm before both ranks have compiled,
a "real speed" is not that of the script's last steps, or the rival is not named while it works.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.daemon import daemon

TRAINING = Path(__file__).parent / "trainings" / "pair.py"
SECONDS, BEFORE_RIVAL, RIVAL_SECONDS, LATE = 110, 20, 30, 25
OFF, OFTEN = 0.1, 0.02  # its steps vary by 10 %; a claim follows a sudden change within a second
RIVAL = f"""
import time, torch
torch.cuda.set_device(1)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.time() + {RIVAL_SECONDS}
while time.time() < end:
    for _ in range(20): a @ a
    torch.cuda.synchronize()
"""
Answer = dict[str, Any]


def main() -> int:
    """Watch it to its end and judge what was said."""
    with tempfile.TemporaryDirectory() as place:
        records, file = Path(place) / "records", Path(place) / "events"
        records.mkdir()
        launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        env = {**os.environ, "WARMWATCH_DIR": str(records)}
        env["TORCHINDUCTOR_CACHE_DIR"] = str(Path(place) / "cache")
        with daemon(records) as url:
            command = [sys.executable, *launch, str(TRAINING), str(file), str(SECONDS)]
            training = subprocess.Popen(command, env=env)
            try:
                answers, rival = _watch(url, training)
            finally:
                training.kill()
        events = json.loads(file.read_text())
    wrong = [*_backwards(answers), *_warm_too_early(answers, events)]
    wrong += [a["summary"] for a in answers if "for a step than" in a["summary"]]  # in lockstep
    wrong += [*_speed(answers, events), *_rival(answers, rival)]
    print(f"{len(answers)} answers", *(wrong or ["nothing wrong"]), sep="\n")
    return 1 if wrong or training.returncode else 0


def _watch(url: str, training: subprocess.Popen[bytes]) -> tuple[list[Answer], tuple[float, float]]:
    """Every answer with a run, and when the rival worked."""
    answers, kinds, warm_since = list[Answer](), set[str](), 0.0
    rival: subprocess.Popen[bytes] | None = None
    began = ended = 0.0
    while training.poll() is None:
        with urllib.request.urlopen(f"{url}/status") as reply:
            answer = json.load(reply)
        if answer["runs"]:
            answers.append(answer)
            kind = re.sub(r"[\d.]+", "#", answer["summary"])
            if kind not in kinds:
                kinds.add(kind)
                print(f"{answer['at'] % 1000:8.2f} {answer['summary']}", flush=True)
        warm_since = (warm_since or answer["at"]) if answer["warm"] else 0.0
        if rival is None and warm_since and answer["at"] > warm_since + BEFORE_RIVAL:
            rival, began = subprocess.Popen([sys.executable, "-c", RIVAL]), answer["at"]
        if rival is not None and not ended and rival.poll() is not None:
            ended = answer["at"]
        time.sleep(0.1)
    return answers, (began, ended)


def _backwards(answers: list[Answer]) -> list[str]:
    """``compiling_since`` stays while one spell of compiling lasts, and seconds never go back."""
    wrong = []
    for before, after in pairwise(answer["runs"][0] for answer in answers):
        goes_on = before["compiling"] and after["compiling"] and _steps(before) == _steps(after)
        if goes_on and after["compiling_seconds"] < before["compiling_seconds"]:
            wrong.append(f"backwards: {before['summary']!r}, then {after['summary']!r}")
    return wrong


def _steps(run: Answer) -> list[int]:
    return [rank["steps"] for rank in run["ranks"]]


def _warm_too_early(answers: list[Answer], events: list[tuple[str, float]]) -> list[str]:
    first = next(at for kind, at in events if kind == "step")
    early = [answer for answer in answers if answer["warm"] and answer["at"] < first]
    return [f"warm before the first step: {answer['summary']!r}" for answer in early[:3]]


def _speed(answers: list[Answer], events: list[tuple[str, float]]) -> list[str]:
    """Each "real speed" against the script's clock: the median of as many last steps."""
    steps = [(end - start, end) for (_, start), (kind, end) in pairwise(events) if kind == "step"]
    claims, wrong = 0, []
    for answer in answers:
        if "is the real speed" not in answer["summary"]:
            continue
        claims, rank = claims + 1, answer["runs"][0]["ranks"][0]
        told, count = rank["step_seconds"]["recent"], rank["step_seconds"]["recent_steps"]
        last = [seconds for seconds, end in steps if end < answer["at"]][-count:]
        truth = statistics.median(last)
        if abs(told / truth - 1) > OFF:
            wrong.append(f"{answer['summary']}: {1e3 * truth:.2f} ms by the script")
    print(f"{len(wrong)} of {claims} claims of the real speed are off by more than {OFF:.0%}")
    return wrong if len(wrong) > OFTEN * claims else []


def _rival(answers: list[Answer], rival: tuple[float, float]) -> list[str]:
    """When it was named first and last, since it began and ended."""
    named = [a["at"] for a in answers if a["at"] > rival[0] and _contended(a["runs"][0])]
    if not named:
        return ["the rival was not named"]
    print(f"the rival was named {named[0] - rival[0]:.1f} s after its start", end=", ")
    print(f"for the last time {named[-1] - rival[1]:.1f} s after its end")
    return ["named too late"] if named[0] - rival[0] > LATE or named[-1] - rival[1] > LATE else []


def _contended(run: Answer) -> bool:
    limits = [run["limited_by"], *(rank["limited_by"] for rank in run["ranks"])]
    return any(limit and limit["contended"] == "gpu" for limit in limits)


if __name__ == "__main__":
    sys.exit(main())
