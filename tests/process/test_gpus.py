"""A real daemon with the real pynvml over a library that stands in for a driver's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support import golden, records
from support.daemon import daemon_process
from support.nvml import Standin, board
from support.records import wait_until

CAPTURES = Path(__file__).parent.parent / "captures"


@pytest.fixture
def nvml(tmp_path: Path) -> Standin:
    folder = tmp_path / "nvml"
    folder.mkdir()
    return Standin(folder)


class Daemon:
    """A daemon's two answers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def status(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/status", timeout=60) as reply:
            return dict(json.load(reply))

    def metrics(self) -> list[str]:
        with urlopen(f"{self.url}/metrics", timeout=60) as reply:
            return str(reply.read().decode()).splitlines()

    def source(self) -> dict[str, Any]:
        (nvml,) = (one for one in self.status()["sources"] if one["source"] == "nvml")
        return dict(nvml)


@contextmanager
def watching(nvml: Standin, directory: Path, *options: str) -> Iterator[Daemon]:
    """A daemon that looks at the GPUs ten times a second."""
    arguments = ("--dir", str(directory), "--interval", "0.05", "--gpu-interval", "0.1", *options)
    with daemon_process(*arguments, **nvml.environment) as (_, url):
        daemon = Daemon(url)
        wait_until(lambda: daemon.source()["error"] != "its first read has not ended")
        yield daemon


def test_a_machine_without_a_driver_reports_it_and_serves_everything_else(
    nvml: Standin, tmp_path: Path
) -> None:
    with watching(nvml, tmp_path) as daemon:
        assert daemon.source()["up"] is False
        assert daemon.source()["error"] == "the NVIDIA driver is not loaded"
        assert daemon.status()["gpus"] == []
        lines = daemon.metrics()
        assert 'warmwatch_source_up{source="nvml"} 0.0' in lines
        assert not any(line.startswith("warmwatch_gpu") for line in lines)


def test_an_nvml_call_that_never_returns_blocks_no_answer(nvml: Standin, tmp_path: Path) -> None:
    """The source times out and answers continue; once the driver responds it is read again."""
    nvml.say(board(0))
    with watching(nvml, tmp_path) as daemon:
        wait_until(lambda: daemon.status()["gpus"])
        nvml.say(board(0, power="hang"))
        # every answer until then comes while NVML hangs: one that waited for it would never come
        wait_until(lambda: daemon.metrics() and not daemon.source()["up"])
        assert "no answer for" in daemon.source()["error"]
        assert daemon.status()["gpus"] == [], "old figures are no figures"
        assert not any(line.startswith("warmwatch_gpu_power") for line in daemon.metrics())
        nvml.say(board(0))
        wait_until(lambda: daemon.source()["up"])
        assert daemon.status()["gpus"][0]["power_watts"] == 686.0


def test_nvml_is_not_loaded_if_it_is_off(nvml: Standin, tmp_path: Path) -> None:
    nvml.say(board(0))
    arguments = ("--dir", str(tmp_path), "--gpu-interval", "off")
    with daemon_process(*arguments, **nvml.environment) as (_, url):
        daemon = Daemon(url)
        sources = {one["source"] for one in daemon.status()["sources"]}
    assert "nvml" not in sources


def test_ranks_are_joined_to_their_gpus_by_uuid_not_by_index(nvml: Standin, tmp_path: Path) -> None:
    """The training's own device 0 may be any of the host's, as with CUDA_VISIBLE_DEVICES=1."""
    nvml.say(board(0, power="118000", util="0 0"), board(1))
    slot = records.warm(gpus=(board(1)["uuid"],))
    folder = records.write_record(tmp_path, slot)
    with records.held(folder), watching(nvml, tmp_path) as daemon:
        busy = "GPU 1 at 98 %, 686 W"
        wait_until(lambda: busy in daemon.status()["summary"])
        status = daemon.status()
        assert status["runs"][0]["ranks"][0]["gpus"] == [board(1)["uuid"]]
        join = f'warmwatch_rank_gpu_info{{rank="0",run="gpt2",uuid="{board(1)["uuid"]}"}} 1.0'
        assert join in daemon.metrics()


def test_the_energy_of_a_compilation_is_measured_while_it_runs(
    nvml: Standin, tmp_path: Path
) -> None:
    """118 W for as long as the rank compiles: joules over covered seconds give it back."""
    nvml.say(board(0, util="0 0", power="118000", energy="1000 118"))
    slot = records.compiling(gpus=(board(0)["uuid"],))
    folder = records.write_record(tmp_path, slot)
    with records.held(folder), watching(nvml, tmp_path) as daemon:

        def energy() -> dict[str, float]:
            return daemon.status()["runs"][0]["ranks"][0]["energy"] or {"covered_seconds": 0}

        def watts(spent: dict[str, float]) -> float:
            covered = spent["covered_seconds"]
            return spent["compile_joules"] / covered if covered > 2 else 0.0

        # meter and clock are read one after the other: what a busy core makes of that at both ends
        # is the less the longer it goes on
        wait_until(lambda: watts(energy()) == pytest.approx(118, rel=0.02))
        spent = energy()
        assert spent["joules_per_clean_step"] is None
        summary = daemon.status()["summary"]
        assert "118 W" in summary
        lines = daemon.metrics()
        assert any(one.startswith("warmwatch_compile_energy_joules_total{") for one in lines)
        assert any(one.startswith("warmwatch_compile_gpu_seconds_total{") for one in lines)


def test_doctor_names_each_gpu_and_times_out_on_a_hanging_driver(
    nvml: Standin, tmp_path: Path
) -> None:
    def doctor_output() -> str:
        command = [sys.executable, "-m", "warmwatch_monitor", "doctor", "--dir", str(tmp_path)]
        environ = records.environment(WARMWATCH_ADDRESS="127.0.0.1:9", **nvml.environment)
        return subprocess.run(command, env=environ, capture_output=True, text=True).stdout

    missing = r"^note  (no NVIDIA GPU here; )?NVML: the NVIDIA driver is not loaded"
    assert re.search(missing, doctor_output(), re.MULTILINE)
    nvml.say(board(0), board(1, util="hang"))
    first = f"ok    GPU 0 ({board(0)['uuid']}): NVIDIA H100 80GB HBM3, driver 580.159.04"
    assert "DO    NVML has not answered for 10 s" in doctor_output()
    nvml.say(board(0), board(1))
    assert first in doctor_output()


@pytest.mark.parametrize("capture", ["nvml_h100", "nvml_h200_x2"])
def test_data_of_a_real_driver_give_the_reviewed_metrics(
    nvml: Standin, tmp_path: Path, capture: str
) -> None:
    """A recording of the real library, replayed; promtool has nothing to say."""
    nvml.replay(CAPTURES / f"{capture}.json")
    lines: list[str] = []
    devices = len(json.loads((CAPTURES / f"{capture}.json").read_text())["devices"])

    def of_gpus() -> list[str]:
        """Their figures, once each was read twice: activity is measured between two samples."""
        found = [line for line in daemon.metrics() if "warmwatch_gpu" in line]
        return found if sum("sm_active_ratio{" in line for line in found) == devices else []

    with watching(nvml, tmp_path) as daemon:
        wait_until(lambda: lines.extend(of_gpus()) or lines)
    text = "\n".join([*lines, ""])
    golden.check(f"metrics_{capture}.txt", text, tmp_path)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
