"""``warmwatch modes``: a mode imposed on real calls, and a real script in two of them."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.daemon import completed
from support.records import environment as records_environment
from support.records import wait_until
from support.trainings import PRELUDE, environment, result_of

MODES = [sys.executable, "-m", "warmwatch_monitor", "modes"]

# PyTorch's own settings of each compiled object; nothing is compiled.
CALLS = """
import pathlib, sys, warnings
place = pathlib.Path("site-packages"); place.mkdir(); sys.path.insert(0, str(place))
(place / "library.py").write_text("import torch\\ndef compiled_by(f): return torch.compile(f)\\n")
import library

def settings(made):
    found = getattr(made, "dynamo_ctx", made)
    config = getattr(found, "compiler_config", None) or made.get_compiler_config()
    return [config["max_autotune"], config["coordinate_descent_tuning"], config["shape_padding"]]

def plain(x): return x + 1

@torch.compile(mode="reduce-overhead")
def decorated(x): return x + 2

made = {
    "function": torch.compile(plain),
    "decorator": decorated,
    "module": torch.compile(make(), mode="max-autotune", dynamic=False),
    "compiler": torch.compiler.compile(plain),
    "library": library.compiled_by(plain),
}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    made["options"] = torch.compile(plain, options={"shape_padding": False})
    x = torch.compile(plain, backend="eager")(torch.ones(2)).tolist()
found_settings = {name: settings(one) for name, one in made.items()}
import warmwatch; warmwatch.detach()
found_settings["after"] = settings(torch.compile(plain))
result([found_settings, x, [str(one.message) for one in caught if "warmwatch" in str(one.message)]])
"""


def test_the_mode_applies_to_every_call_and_an_incompatible_call_is_reported(records: Path) -> None:
    env = {"WARMWATCH_MODE": "max-autotune-no-cudagraphs"}
    reported, x, message = result_of(records, CALLS, env=env)
    after = reported.pop("after")
    padding = after[2]
    assert reported == {key: [True, True, padding] for key in reported}
    assert after == [False, False, padding]
    assert x == [2.0, 2.0]
    assert len(message) == 2
    assert "takes the place of a call's options: shape_padding" in message[0]
    assert "backend 'eager'" in message[1]


def printed(log: Path) -> list[float]:
    return [float(line) for line in log.read_text().splitlines() if re.fullmatch(r"[\d.e-]+", line)]


def relative(losses: list[float], eager: list[float], passes: int) -> float:
    """The largest difference over so many passes, by the mean magnitude of eager's losses."""
    pairs = list(zip(losses, eager, strict=False))[:passes]
    assert len(pairs) == passes
    scale = sum(abs(one) for _, one in pairs) / passes
    return max(abs(loss - one) for loss, one in pairs) / scale


def command(
    records: Path, body: str, *options: str, trains: bool = True, **env: str
) -> tuple[list[str], dict[str, str]]:
    """``trains``: after the prelude, which imports PyTorch."""
    script = records.parent / "fit.py"
    prelude = PRELUDE.replace("from support.gate import gate, result\n", "")
    script.write_text(prelude * trains + body)
    variables = environment(records, WARMWATCH_STATE=str(records.parent / "state"), **env)
    return [*MODES, *options, "--", sys.executable, str(script)], variables


def test_ctrl_c_ends_modes_and_shows_the_results_so_far(records: Path, tmp_path: Path) -> None:
    options = (
        "--mode",
        "eager",
        "--mode",
        "default",
        "--output",
        str(tmp_path),
        "--timeout",
        "600",
    )
    body = "print('up', flush=True)\nimport time\nwhile True: time.sleep(0.05)"
    line, env = command(records, body, *options, trains=False)
    with subprocess.Popen(
        line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as beside:
        output = tmp_path / "eager.log"
        wait_until(lambda: output.exists() and "up" in output.read_text())
        beside.send_signal(signal.SIGINT)
        shown, _ = beside.communicate()
    assert beside.returncode == 128 + signal.SIGINT
    assert "no step and no compilation was seen: it was interrupted" in " ".join(shown.split())
    assert "not tried: default" in shown


def test_a_budget_ends_the_run_in_progress_and_leaves_out_the_rest(records: Path) -> None:
    options = ("--mode", "eager", "--mode", "default", "--budget", "2s", "--json")
    line, env = command(records, "import time\ntime.sleep(600)", *options, trains=False)
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # nothing was measured
    table = json.loads(done.stdout)
    assert [(row["mode"], row["ended_by"]) for row in table["rows"]] == [("eager", "budget")]
    assert (table["over_budget"], table["budget_seconds"]) == (["default"], 2)
    assert "default is skipped" in done.stderr


def tried(
    records: Path, *options: str, command: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """``modes`` with a command that trains nothing."""
    env = records_environment(WARMWATCH_DIR=str(records))
    return completed("modes", *options, "--", *command, env=env, cwd=records.parent)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--mode", "fast"), "warmwatch: --mode"),
        (("--budget", "soon"), "Usage: warmwatch modes"),
        (("--mode", "default", "--max-drift", "0.1"), "warmwatch: --max-drift compares"),
        (("--json", "--markdown"), "warmwatch: give either --json or --markdown, not both\n"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_runs(
    records: Path, options: tuple[str, ...], words: str
) -> None:
    began = time.monotonic()
    done = tried(records, *options, command=("sleep", "600"))
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(words)
    assert time.monotonic() - began < 600


# Inductor computes in float32 within a kernel where eager rounds to bfloat16 after each operation.
DRIFTING = """
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1)
).to(torch.bfloat16)
o = torch.optim.SGD(model.parameters(), lr=.01)
compiled = torch.compile(model, mode="reduce-overhead")
for _ in range(10**9):
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    loss = (compiled(x).float() - x.float().sum(1, keepdim=True)).square().mean()
    print(repr(loss.item()), flush=True)  # before it is recorded: the end may come in between
    loss.backward(); o.step(); o.zero_grad()
"""


@pytest.mark.long  # five trainings with cold caches; tests/monitor/modes has each figure
def test_the_drift_agrees_with_the_losses_that_the_script_prints(
    records: Path, tmp_path: Path
) -> None:
    """Each mode is measured. bfloat16 losses differ compiled; two eager runs print the same."""
    output = tmp_path / "out"
    options = ("--mode", "eager", "--mode", "default", "--steps", "20", "--max-drift", "1e-9")
    options = (*options, "--rounds", "2")
    line, env = command(records, DRIFTING, *options, "--json", "--output", str(output))
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    table = json.loads(done.stdout)
    assert (table["baseline"], table["caches"], table["untried"]) == ("eager", "cold", [])
    for row in table["rows"]:  # it is ended in each mode when enough of it was seen
        assert re.search(
            rf"^warmwatch: {row['mode']}: .+ \(.+ in all\)$", done.stderr, re.MULTILINE
        )
        assert (row["outcome"], row["ended_by"], row["agent_errors"]) == ("measured", "steps", 0)
        assert (row["steps"] >= 20, row["mean_seconds"] > 0) == (True, True)
    runs = [sys.executable, "-m", "warmwatch_monitor", "runs", "--json"]
    known = json.loads(subprocess.check_output(runs, env=env, text=True))["runs"]
    assert [one["run"] for one in reversed(known)] == ["fit/eager", "fit/default"] * 2
    assert {one["state"] for one in known} == {"finished"}

    _, default = table["rows"]
    assert [row["compiled"] for row in table["rows"]] == [False, True]
    assert default["graphs"] == 1
    assert [way["mode"] for way in default["wrappings"]] == ["default"]  # not the script's
    assert default["cost_seconds"] >= default["compile_seconds"] > 0
    assert default["break_even"] is not None

    drift = default["drift"]
    names = ("default", "eager", "eager-2")
    compiled, eager, again = (printed(output / f"{name}.log") for name in names)
    assert drift["passes"] >= 20
    assert drift["relative"] == pytest.approx(relative(compiled, eager, drift["passes"]), rel=1e-12)
    assert drift["relative"] > 0
    at = drift["step"] - 1
    assert (drift["loss"], drift["eager_loss"]) == (compiled[at], eager[at])
    noise = relative(again, eager, drift["noise_passes"])
    assert (drift["noise"], default["max_drift_exceeded"]) == (noise, True)
    assert noise == 0
    assert default["peak_resident_bytes"] > 10**8
    assert 0 < default["guard_seconds"] < default["mean_seconds"]
    assert table["rows"][0]["guard_seconds"] is None
    assert "warmwatch: round 2, eager (about " in done.stderr
    assert re.search(r"^warmwatch: eager, round 2: runs eagerly", done.stderr, re.MULTILINE)
    for row in table["rows"]:
        mode, lengths = row["mode"], [math.log(one["seconds"]) for one in row["runs"]]
        assert [one["id"] for one in row["runs"]] == [f"{mode} 1", f"{mode} 2"]
        if not any(one["disturbed"] for one in row["runs"]):
            assert row["mean_seconds"] == pytest.approx(math.exp(sum(lengths) / 2))
    assert default["speed_up"]["verdict"] != "once"


GUARDED = """
import json, signal, sys, torch
from torch.profiler import ProfilerActivity, profile
torch.set_num_threads(1)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)
    def forward(self, x): return x + self.linear(self.norm(x))
model = torch.nn.Sequential(*(Block() for _ in range(30)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
@torch.compile(backend="aot_eager")
def guarded(x): return model(x).square().mean()
def step():
    guarded(x).backward()
    optimizer.step()
    optimizer.zero_grad()
x, ended = torch.randn(4, 16), []
signal.signal(signal.SIGINT, lambda *_: ended.append(1))
while not ended: step()
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    for _ in range(20): step()
events = profiled.profiler.kineto_results.events()
took = [e.duration_ns() / 1e3 for e in events if e.name() == "TorchDynamo Cache Lookup"]
open(sys.argv[1], "w").write(json.dumps(sorted(took)))
"""


@pytest.mark.long
def test_doctor_and_the_trainings_profiler_measure_the_same_guard_checks(
    records: Path, tmp_path: Path
) -> None:
    script, file = tmp_path / "train.py", tmp_path / "truth"
    script.write_text(GUARDED)
    done = subprocess.run(
        [*MODES[:-1], "doctor", "--json", "--", sys.executable, str(script), str(file)],
        env={**os.environ, "WARMWATCH_DIR": str(records)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    words = r"guard checks take ([\d.]+) (m?s) of each step \(([\d.]+) %\), .* in guarded \(.*train"
    measured = re.match(words, found["what"])
    assert measured, found["what"]
    unit = {"ms": 1e3, "s": 1e6}[measured[2]]
    truth = json.loads(file.read_text())
    assert len(truth) == 20
    microseconds = float(measured[1]) * unit
    assert truth[2] / 2 < microseconds < 2 * truth[17]
    assert 1 < float(measured[3]) < 100
