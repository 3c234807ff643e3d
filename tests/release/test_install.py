"""The wheel in each Python found here, with the lowest and the newest release of each dependency.

``make test-install`` runs these: they download every dependency.
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
from pathlib import Path
from urllib.request import urlopen

import pytest

from support.records import wait_until
from support.trainings import ROOT

pytestmark = pytest.mark.install
UV = Path(sys.executable).with_name("uv")
# that pyproject.toml supports, and the free-threaded builds
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.13t", "3.14t")
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


def call(*command: object, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clean clone of the last commit."""
    place = tmp_path_factory.mktemp("release")
    call("git", "clone", "-q", ROOT, place / "clone")
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


@pytest.fixture
def training(
    python: Path, wheel: Path, tmp_path: Path, records: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A process that is attached in an environment with the agent alone."""
    agent = environment(python, tmp_path / "agent", wheel)
    with subprocess.Popen(
        [agent / "python", "-c", _TRAINING],
        env=records,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"
        yield process
        process.kill()


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

    serve = [warmwatch, "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(serve, env=records, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            line = daemon.stdout.readline()
            found = re.search(r"http://[\d.:]+", line)
            assert found, line
            url = found.group()
            wait_until(lambda: "warmwatch_steps_total{" in get(f"{url}/metrics"))
            assert json.loads(get(f"{url}/status"))["runs"][0]["state"] == "eager"
            assert "<html" in get(f"{url}/")
            assert "openapi" in get(f"{url}/openapi.json")
        finally:
            daemon.send_signal(signal.SIGTERM)
    assert daemon.returncode == 0


def get(url: str) -> str:
    with urlopen(url, timeout=600) as answer:
        return str(answer.read().decode())
