"""``warmwatch check``: the gate, on this project's own demo, and where it must not be passed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.daemon import completed
from support.records import environment as records_environment
from support.trainings import PRELUDE, environment
from warmwatch.shared.advice import ADVICE

CHECK = [sys.executable, "-m", "warmwatch_monitor", "check"]
HERE = Path(__file__).parent / "checked"

# Two sizes and a graph break.
GROWN = """
import os
assert not os.path.exists(os.environ["TORCHINDUCTOR_CACHE_DIR"]), "its caches are its own"
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
def loss_of(x):
    print("mine")
    return model(x).square().mean()
compiled = torch.compile(loss_of, backend="eager")
for size in (4, 5):
    for _ in range(5):
        compiled(torch.randn(size, 8)).backward(); o.step(); o.zero_grad()
"""
COUNTS = {
    "graphs": 1,
    "graph_breaks": 0,
    "recompiles": 0,
    "recompiles_after_warm": 0,
    "fallbacks": 7,
}
SMALL = json.dumps(
    {
        "schema": 1,
        "ignore": ["warmup_ratio"],
        "runs": {"train": {"ranks": {"0": {"counts": COUNTS}}}},
    }
)


def checked(
    records: Path, *options: str, command: tuple[str, ...], **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CHECK, *options, "--", *command],
        cwd=records.parent,
        env=environment(records, **env),
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.first
def test_the_demo_compiles_what_its_baseline_lists(records: Path) -> None:
    """The gate of this project's own CI. What changed on purpose is accepted by ``--update``."""
    base = str(HERE / "demo.json")
    done = checked(records, "--baseline", base, command=(sys.executable, str(HERE / "demo.py")))
    assert done.returncode == 0, done.stderr
    assert "passed: nothing grew" in done.stderr
    assert "demo, rank 0: 2 graphs, 0 graph breaks, 1 recompile," in done.stderr


@pytest.mark.first
def test_an_exceeded_baseline_fails_with_reasons(records: Path) -> None:
    place = records.parent
    (place / "train.py").write_text(PRELUDE + GROWN)
    (place / "base.json").write_text(SMALL)
    train = (sys.executable, "train.py")
    files = ("--markdown", "out.md", "--json", "out.json")
    done = checked(records, "--baseline", "base.json", *files, command=train)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "mine\n" * 10  # all that is there is the command's own
    assert "failed: 4 numbers grew beyond base.json" in done.stderr
    assert re.search(rf"\b4\b.*\b5\b.*\n      {re.escape(ADVICE['shape'])}", done.stderr)
    assert re.search(r"graph breaks: 1, was 0\n    `loss_of` \(train\.py:\d+\): ", done.stderr)
    printed = json.loads((place / "out.json").read_text())
    grew = [one["measure"] for one in printed["compared"] if one["grew"]]
    assert grew == ["graphs", "graph_breaks", "recompiles", "recompiles_after_warm"]
    assert "| ❌ graph breaks |" in (place / "out.md").read_text()


# It stands in for a training that compiles.
ACTIVE = """
import warmwatch
warmwatch.attach()
with warmwatch.activity("build"): warmwatch.step()
for _ in range(4): warmwatch.step()
"""


def test_update_accepts_what_changed_and_keeps_what_is_ignored(records: Path) -> None:
    place = records.parent
    (place / "train.py").write_text(ACTIVE)
    (place / "base.json").write_text(SMALL)
    train = (sys.executable, "train.py")
    done = checked(records, "--baseline", "base.json", "--update", command=train)
    assert done.returncode == 0, done.stderr
    assert "wrote base.json" in done.stderr
    assert "functions left to run eagerly: 0, was 7" in done.stderr
    written = json.loads((place / "base.json").read_text())
    counts = written["runs"]["train"]["ranks"]["0"]["counts"]
    assert (written["ignore"], counts["graphs"], counts["fallbacks"]) == (["warmup_ratio"], 0, 0)


# What must not pass; nothing of it trains.


def refused(
    records: Path, *options: str, command: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    env = records_environment(WARMWATCH_DIR=str(records))
    return completed("check", *options, "--", *command, env=env, cwd=records.parent)


def test_without_a_baseline_it_prints_the_command_and_runs_nothing(records: Path) -> None:
    done = refused(records, "--baseline", "no.json", command=("touch", "ran"))
    assert done.returncode == 2
    assert "`warmwatch check --baseline no.json --update -- CMD`" in done.stderr
    assert not (records.parent / "ran").exists()


@pytest.mark.parametrize("update", [(), ("--update",)])
@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("sh", "-c", "exit 1"), 4, "sh failed with exit code 1"),
        (("true",), 5, "no step and no compilation was seen"),
        (("nothing-of-that-name",), 127, "nothing-of-that-name: not found"),
        (("sh", "-c", "kill -TERM $$"), -signal.SIGTERM, ""),
    ],
)
def test_a_command_that_fails_or_does_not_train_never_passes(
    records: Path, command: tuple[str, ...], code: int, words: str, update: tuple[str, ...]
) -> None:
    base = records.parent / "base.json"
    base.write_text(SMALL)
    done = refused(records, "--baseline", "base.json", *update, command=command)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert base.read_text() == SMALL


@pytest.mark.parametrize(
    ("number", "update"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--update",))]
)
def test_a_command_that_was_terminated_never_passes_even_with_exit_code_0(
    records: Path, number: signal.Signals, update: tuple[str, ...]
) -> None:
    """One that catches Ctrl-C, saves and exits with 0 has compiled a part of what it would have."""
    place = records.parent
    (place / "base.json").write_text(SMALL)
    line = f"trap 'exit 0' {number.name[3:]}; echo up; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [*CHECK, "--baseline", "base.json", *update, "--", "sh", "-c", line],
        cwd=place,
        env=environment(records),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C is ignored by what a shell started in the background, and by all below it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as check:
        assert check.stdout
        assert check.stdout.readline() == "up\n"
        check.send_signal(number)
        _, output = check.communicate()
    assert check.returncode == 128 + number
    assert f"it was ended by {number.name}, so nothing was compared" in output
    assert (place / "base.json").read_text() == SMALL


# It stands in for a training: steps, and an agent that has not ended.
LEFT = """
import os, pathlib, time
import warmwatch
warmwatch.attach(run="left")
for _ in range(9): warmwatch.step()
pathlib.Path("caches").write_text(os.environ["TORCHINDUCTOR_CACHE_DIR"])
pathlib.Path("up").touch()
while not pathlib.Path("over").exists(): time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("", 5, "left: rank 0 was still running when the command ended, so nothing was compared"),
        ("; exit 3", 4, "sh failed with exit code 3, so nothing was compared"),
        ("; kill -TERM $$", -signal.SIGTERM, ""),
    ],
)
def test_a_training_that_outlives_its_command_never_passes_and_its_caches_stay(
    records: Path, end: str, code: int, words: str
) -> None:
    place = records.parent
    (place / "left.py").write_text(LEFT)
    (place / "base.json").write_text(SMALL)
    line = f"{sys.executable} left.py >/dev/null 2>&1 & until test -e up; do sleep 0.1; done{end}"
    try:
        done = checked(records, "--baseline", "base.json", command=("sh", "-c", line))
        caches = Path((place / "caches").read_text()).parent
        assert caches.is_dir()
        caches.rmdir()
    finally:
        (place / "over").touch()
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert f"remove {caches} when those processes have ended" in done.stderr


# It stands in for a training: both its records have compile activity.
RESTART = """
import os, sys, warmwatch
def train():
    with warmwatch.activity("build"): warmwatch.step()
    for _ in range(4): warmwatch.step()
warmwatch.attach()
train()
if "AGAIN" not in os.environ:
    os.environ["AGAIN"] = "1"
    {restart}
    train()
"""


@pytest.mark.parametrize(
    "restart",
    [
        pytest.param("os.execv(sys.executable, [sys.executable, *sys.argv])", id="exec"),
        pytest.param("warmwatch.detach(); warmwatch.attach()", id="attach"),
    ],
)
def test_a_process_that_restarted_after_compiling_never_passes(records: Path, restart: str) -> None:
    (records.parent / "train.py").write_text(RESTART.format(restart=restart))
    (records.parent / "base.json").write_text(SMALL)
    done = checked(records, "--baseline", "base.json", command=(sys.executable, "train.py"))
    assert done.returncode == 5, done.stderr
    assert "its process restarted when it had compiled" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --baseline FILE"),
        (("--against", "' "), "--against: No closing quotation"),
        (
            ("--baseline", "b", "--update", "--against", "x"),
            "--update and --against exclude each other",
        ),
        (("--baseline", "base.json", "--markdown", "no/where.md"), "the directory of no/where.md"),
        (("--baseline", "broken.json"), "broken.json: it is no baseline: Input data was truncated"),
        (("--baseline", "digits.json"), "digits.json: it is no baseline: Number out of range"),
        (("--baseline", "nested.json"), "nested.json: it is no baseline: maximum recursion depth"),
        (("--baseline", "newer.json", "--update"), "remove it, and write it again with --update"),
        (
            ("--baseline", "no/base.json", "--update"),
            "the directory of no/base.json does not exist",
        ),
        (("--baseline", ".", "--update"), ". is a directory"),
        (("--baseline", "-", "--update"), "--baseline needs a file"),
    ],
)
def test_wrong_use_is_reported_before_anything_runs(
    records: Path, options: tuple[str, ...], words: str
) -> None:
    (records.parent / "broken.json").write_text('{"schema":')
    for name, value in (
        ("digits", "9" * 5_000),
        ("nested", "[" * 50_000),
    ):
        (records.parent / f"{name}.json").write_text(f'{{"schema": 1, "tolerance": {value}}}')
    (records.parent / "base.json").write_text(SMALL)
    (records.parent / "newer.json").write_text('{"schema": 2}')
    done = refused(records, *options, command=("touch", "ran"))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (records.parent / "ran").exists()


@pytest.mark.long
def test_against_needs_no_baseline_file(records: Path) -> None:
    place = records.parent
    (place / "train.py").write_text(PRELUDE + GROWN)
    train = f"{sys.executable} train.py"
    done = checked(
        records, "--against", train, "--tolerance", "9", command=(sys.executable, "train.py")
    )
    assert done.returncode == 0, done.stderr
    assert "train: warm-up " in done.stderr
    assert "as long as" not in done.stderr  # in seconds, of one machine


@pytest.mark.long
def test_a_training_that_compiles_nothing_never_passes(records: Path) -> None:
    place = records.parent
    (place / "train.py").write_text(
        PRELUDE
        + GROWN.split("assert")[0]
        + """
model = make(); train(model, torch.optim.SGD(model.parameters(), lr=.1), 5)
"""
    )
    (place / "base.json").write_text(SMALL)
    done = checked(records, "--baseline", "base.json", command=(sys.executable, "train.py"))
    assert done.returncode == 5, done.stderr
    assert "nothing was compiled: torch.compile was never called" in done.stderr
