"""The wheel in each Python found here, with the lowest and the newest release of each dependency;
and this release with the one before it.

``make test-install`` runs these: they download every dependency. The release before is the newest
tag below the last commit, or ``PREVIOUS``, any commit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest

from support.records import wait_until
from support.trainings import ROOT
from warmwatch.shared.reasons import plain

pytestmark = pytest.mark.install
UV = Path(sys.executable).with_name("uv")
# that pyproject.toml supports, and the free-threaded build
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
_VERSION = """
import sys, sysconfig
print(*sys.version_info[:2], sysconfig.get_config_var("Py_GIL_DISABLED") or 0)
"""
_TRAINING = """
import sys, warmwatch
warmwatch.attach(run="installed")
for _ in range(9):
    warmwatch.step()
print("attached", flush=True)
sys.stdin.read()
"""
REASON = str(plain("tensor 'x' size mismatch at index 0. expected 2, actual 3"))
_COMPILED = """
import select, sys, torch, warmwatch
warmwatch.attach(run=sys.argv[1])
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
loss_of = torch.compile(lambda x: layer(x).square().sum(), backend="aot_eager", dynamic=False)
def train(rows):
    loss_of(torch.ones(rows, 4)).backward()
    optimizer.step()
for step in range(20):
    train(2 if step < 10 else 3)
print("attached", flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:  # until it is closed
    train(3)
"""


def call(*command: object, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("HEAD", tmp_path_factory.mktemp("release"))


def built(commit: str, place: Path) -> Path:
    """The wheel of a clean clone."""
    commit = call("git", "-C", ROOT, "rev-parse", f"{commit}^{{commit}}").strip()
    call("git", "clone", "-q", ROOT, place / "clone")
    call("git", "-C", place / "clone", "checkout", "-q", commit)
    call(UV, "build", "-q", "--wheel", "--out-dir", place, place / "clone")
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(params=PYTHONS, ids=lambda python: f"python_{python}_", scope="session")
def python(request: pytest.FixtureRequest) -> Path:
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} here")
    return found


def interpreter(version: str) -> Path | None:
    """A Python of ``version`` on the PATH, or of pyenv."""
    short, threaded = version.rstrip("t"), version.endswith("t")
    places = [Path(path) for path in [shutil.which(f"python{version}")] if path]
    places += (Path.home() / ".pyenv/versions").glob(f"{short}.*/bin/python{version}")
    for place in places:
        done = subprocess.run([place, "-c", _VERSION], capture_output=True, text=True, check=False)
        if done.stdout.split() == [*short.split("."), str(int(threaded))]:
            return place
    return None


@pytest.fixture
def records(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "records").mkdir()
    ours = {"WARMWATCH_DIR": str(tmp_path / "records"), "WARMWATCH_STATE": "off"}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WARMWATCH_", "PYTHON"))}
    return clean | ours


def environment(python: Path, place: Path, *packages: object) -> Path:
    """A new environment; its folder of programs."""
    call(UV, "venv", "-q", "--python", python, place)
    call(UV, "pip", "install", "-q", "--python", place / "bin/python", *packages)
    return place / "bin"


@contextmanager
def attached(
    python: Path, script: str, *words: str, env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A training that has made its first steps, and lives until its standard input is closed."""
    command = [python, "-c", script, *words]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"
        yield process
        process.kill()


@contextmanager
def serving(warmwatch: Path, env: dict[str, str]) -> Iterator[str]:
    """A daemon, as its URL. It ends with exit code 0."""
    serve = [warmwatch, "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(serve, env=env, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            line = daemon.stdout.readline()
            found = re.search(r"http://[\d.:]+", line)
            assert found, line
            yield found.group()
        finally:
            daemon.send_signal(signal.SIGTERM)
    assert daemon.returncode == 0


@pytest.fixture
def training(
    python: Path, wheel: Path, tmp_path: Path, records: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A process that is attached in an environment with the agent alone."""
    agent = environment(python, tmp_path / "agent", wheel)
    with attached(agent / "python", _TRAINING, env=records) as process:
        yield process


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_the_monitor_reads_an_agent_of_another_environment(
    python: Path,
    wheel: Path,
    resolution: str,
    tmp_path: Path,
    records: dict[str, str],
    training: subprocess.Popen[str],
) -> None:
    package = f"warmwatch[monitor,otlp,stacks] @ {wheel.as_uri()}"
    monitor = environment(python, tmp_path / "monitor", "--resolution", resolution, package)
    warmwatch = monitor / "warmwatch"

    assert call(warmwatch, "--version", env=records).startswith("warmwatch, version ")
    answer = json.loads(call(warmwatch, "status", "installed", "--json", env=records))
    assert answer["runs"][0]["state"] == "eager"
    assert answer["runs"][0]["ranks"][0]["steps"] == 9

    with serving(warmwatch, records) as url:
        wait_until(lambda: "warmwatch_steps_total{" in get(f"{url}/metrics"))
        assert json.loads(get(f"{url}/status"))["runs"][0]["state"] == "eager"
        assert "<html" in get(f"{url}/")
        assert "openapi" in get(f"{url}/openapi.json")


def get(url: str) -> str:
    with urlopen(url, timeout=600) as answer:
        return str(answer.read().decode())


class Release(NamedTuple):
    """A release as it is installed: the agent with this PyTorch, and the command."""

    agent: Path
    warmwatch: Path


@pytest.fixture(scope="session")
def two_releases(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    before = os.environ.get("PREVIOUS") or newest_tag()
    if before is None:
        pytest.skip("no tag below the last commit, and no PREVIOUS")
    place = tmp_path_factory.mktemp("two_releases")
    (place / "wheel").mkdir()
    found = {}
    for name, one in (("before", built(before, place / "wheel")), ("this", wheel)):
        agent = place / name / "agent"
        call(UV, "pip", "install", "-q", "--no-deps", "--target", agent, one)
        package = f"warmwatch[monitor] @ {one.as_uri()}"
        programs = environment(Path(sys.executable), place / name / "monitor", package)
        found[name] = Release(agent, programs / "warmwatch")
    return found


def newest_tag() -> str | None:
    """The newest release below the last commit."""
    describe = ("git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    done = subprocess.run(describe, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def test_agents_daemons_and_commands_work_one_release_apart(
    two_releases: dict[str, Release], records: dict[str, str], tmp_path: Path
) -> None:
    commands = [release.warmwatch for release in two_releases.values()]
    with of(two_releases, "before", records) as older, of(two_releases, "this", records):
        for release in two_releases.values():
            with serving(release.warmwatch, records) as url:
                wait_until(lambda url=url: steps_of(url) == 2)
                assert "warmwatch_records_refused 0.0\n" in get(f"{url}/metrics")
                for command in commands:
                    shows_both(command, "--address", url.removeprefix("http://"), env=records)
        for command in commands:
            shows_both(command, "--dir", records["WARMWATCH_DIR"], env=records)

        before, this = commands
        env = records | {"WARMWATCH_STATE": str(tmp_path / "state")}
        with serving(before, env):
            older.communicate()  # it ends
            wait_until(lambda: "finished" in call(before, "runs", env=env))
        with serving(this, env):  # with the history of the older one
            assert "finished" in call(this, "runs", "--name=before", env=env)
            assert REASON in call(this, "report", "before", "-v", env=env)


def of(
    releases: dict[str, Release], name: str, records: dict[str, str]
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A compiled training with the agent of this release; its run has the same name."""
    env = records | {"PYTHONPATH": str(releases[name].agent)}
    return attached(Path(sys.executable), _COMPILED, name, env=env)


def steps_of(url: str) -> int:
    """How many ranks have a counter of steps."""
    return get(f"{url}/metrics").count("warmwatch_steps_total{")


def shows_both(warmwatch: Path, *place: str, env: dict[str, str]) -> None:
    """The command shows both trainings in the same way."""
    runs = json.loads(call(warmwatch, "status", "--json", *place, env=env))["runs"]
    assert [(one["run"], one["state"]) for one in runs] == [("before", "warm"), ("this", "warm")]
    for one in runs:
        (rank,) = one["ranks"]
        counts = rank["compile"]
        assert rank["steps"] >= 20
        assert (counts["graphs"], counts["recompiles_after_warm"]) == (2, 1)
        assert REASON in json.dumps(counts["last"])
    call(warmwatch, "wait", *place, env=env)
