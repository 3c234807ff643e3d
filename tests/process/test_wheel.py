"""The wheel, installed somewhere else, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from support import slots
from support.trainings import ROOT


def call(*command: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={k: v for k, v in clean.items() if not k.startswith("WARMWATCH_")}
        | {"WARMWATCH_STATE": "off", **env},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def build(source: Path, place: Path) -> Path:
    built = call(
        # without isolation: each build would otherwise download the same libraries again
        *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
        *("-w", place, source),
        cwd=place,
    )
    assert built.returncode == 0, built.stderr
    (found,) = place.glob("*.whl")
    return found


def test_pytest_finds_the_plugin_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith("/entry_points.txt")]
        reported = archive.read(name).decode()
        assert "warmwatch/pytest_plugin.py" in archive.namelist()
    assert "[pytest11]\nwarmwatch = warmwatch.pytest_plugin\n" in reported


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and nothing else: no torch, no extra."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    done = call(
        *(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", wheel),
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    return place


def test_the_wheel_holds_both_packages_typed_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"warmwatch/py.typed", "warmwatch_monitor/py.typed", "warmwatch/auto.py"} <= set(names)
    page = "warmwatch_monitor/page"
    assert {f"{page}/index.html", f"{page}/library/uPlot.js", f"{page}/main.js"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "warmwatch",
        "warmwatch_monitor",
    }


@pytest.mark.long
def test_the_wheel_is_reproducible(wheel: Path, tmp_path: Path) -> None:
    copy, place = tmp_path / "elsewhere", tmp_path / "wheel"
    place.mkdir()
    for name in ("agent", "monitor"):
        shutil.copytree(
            ROOT / name,
            copy / name,
            copy_function=shutil.copyfile,  # neither times nor modes
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, copy / name)
    assert build(copy, place).read_bytes() == wheel.read_bytes()


def test_the_sdist_contains_the_charting_library(tmp_path: Path) -> None:
    done = call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert "monitor/warmwatch_monitor/page/library/uPlot.js" in names
    assert not {name.partition("/")[0] for name in names} & {"tests", "docs", "benchmarks"}


def test_the_wheel_has_no_dependencies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        lines = archive.read(name).decode().splitlines()
    needs = [line for line in lines if line.startswith("Requires-Dist")]
    assert needs
    assert {line.partition("extra == ")[2] for line in needs} == {
        "'monitor'",
        "'otlp'",
        "'stacks'",
    }


def test_without_the_extra_the_agent_imports_and_the_command_gives_advice(bare: Path) -> None:
    agent = call(bare / "bin/python", "-c", "import warmwatch.auto; print('attached')", cwd=bare)
    assert (agent.stdout, agent.stderr) == ("attached\n", "")
    reported = call(bare / "bin/warmwatch", "status", cwd=bare)
    assert reported.returncode == 2
    assert reported.stderr.endswith("; get them with: pip install 'warmwatch[monitor]'\n")
    assert len(reported.stderr.splitlines()) == 1


@pytest.mark.first
def test_the_agent_works_with_torch_and_no_extra(wheel: Path, tmp_path: Path) -> None:
    """Installed with torch, and with the monitor's libraries made impossible to import."""
    target, records = tmp_path / "site", tmp_path / "records"
    records.mkdir()
    install = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--target", target)
    assert call(*install, wheel, cwd=tmp_path).returncode == 0
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\n"
        "for name in 'click msgspec prometheus_client psutil rich starlette uvicorn'.split():\n"
        "    sys.modules[name] = None\n"
        "import warmwatch.auto, torch\n"
        "p = torch.nn.Parameter(torch.ones(2)); o = torch.optim.SGD([p])\n"
        "f = torch.compile(lambda: p.square().sum(), backend='aot_eager')\n"
        "for _ in range(5): f().backward(); o.step()\n"
        "print(warmwatch.__file__, warmwatch.state())\n"
    )
    done = call(
        *(sys.executable, script),
        cwd=tmp_path,
        PYTHONPATH=str(target),
        WARMWATCH_DIR=str(records),
    )
    assert done.stdout.split() == [str(target / "warmwatch/__init__.py"), "warm"], done.stderr
    counts = slots.read(slots.only(records)).compile
    assert (counts.graphs, counts.agent_errors) == (1, 0)
