"""The OTLP export: a real daemon, a real receiver, and the one without the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support import otlp
from support.daemon import completed, daemon_process
from support.prometheus import free_port
from support.records import (
    at_rest,
    environment,
    held,
    live_slot,
    update,
    wait_until,
    warm,
    write_record,
)
from warmwatch.shared.record import Slot, StepCounts

Series = dict[tuple[str, str, otlp.Labels], float]
NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


@contextmanager
def exporting(
    records: Path, port: int, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A daemon that watches ``records`` and by default sends to ``port`` ten times a second."""
    reported = {
        "WARMWATCH_OTLP": "on",
        "WARMWATCH_GPU_INTERVAL": "off",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        **NO_PROXY,
        **variables,
    }
    with daemon_process("--dir", str(records), "--interval", "0.05", **reported) as (process, url):
        yield process, url


def get(url: str, path: str) -> str:
    with urlopen(url + path, timeout=60) as reply:
        text: str = reply.read().decode()
    return text


def health(url: str) -> dict[str, Any]:
    (export,) = json.loads(get(url, "/status"))["exports"]
    assert export["export"] == "otlp"
    found: dict[str, Any] = export
    return found


# of the daemon itself: OpenTelemetry has its own resource and clock for them
_OF_THE_DAEMON = ("process_", "warmwatch_daemon_info", "warmwatch_time_seconds")


def scraped(url: str) -> Series:
    return {
        (family.type, sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(url, "/metrics"))
        for sample in family.samples
        if not sample.name.startswith(_OF_THE_DAEMON)
    }


def doctor(records: Path, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch_monitor", "doctor"],
        env=environment(
            WARMWATCH_DIR=str(records),
            WARMWATCH_ADDRESS=url.removeprefix("http://"),
            WARMWATCH_GPU_INTERVAL="off",
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def live(slot: Slot) -> Slot:
    return at_rest(b.moved(slot, time.monotonic_ns(), time.time_ns()))


def test_every_series_of_metrics_arrives_with_its_type_labels_and_value(records: Path) -> None:
    with ExitStack() as stack:
        receiver = stack.enter_context(otlp.receiver())
        one = write_record(records, live(b.as_rank(b.WARM, 0, 2)), name="one")
        stack.enter_context(held(one))
        two = write_record(records, live(b.as_rank(b.RECOMPILING, 1, 2)), name="two")
        stack.enter_context(held(two))
        write_record(records, live(b.in_every_state('odd"\\\nname')["failed"].reading.slot))
        _, url = stack.enter_context(exporting(records, receiver.port))

        # what comes last: the second look at the processes of both, and this export
        last = ["warmwatch_compile_workers"] * 4
        last += ["warmwatch_export_up", "warmwatch_export_last_success_timestamp_seconds"]
        wait_until(lambda: sorted(n for _, n, _ in scraped(url) if n in last) == sorted(last))
        before, taken = scraped(url), len(receiver.taken)
        wait_until(lambda: len(receiver.taken) > taken + 1)
        arrived, after = otlp.series(receiver.taken[taken + 1]), scraped(url)

    assert before.keys() == after.keys() == arrived.keys()
    still = {key: value for key, value in before.items() if after[key] == value}
    assert {kind for kind, _, _ in still} == {"counter", "gauge", "histogram"}
    assert len(still) > 0.9 * len(before)  # the clock, the load and the compile time go on
    assert {key: arrived[key] for key in still} == still


def test_opentelemetrys_variables_set_the_resource_and_the_headers(records: Path) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=lab,service.instance.id=node7",
        "OTEL_SERVICE_NAME": "trainings",
    }
    with otlp.receiver() as receiver:
        endpoint = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{receiver.url}/into/here"}
        with exporting(records, receiver.port, **variables, **endpoint):
            wait_until(lambda: receiver.taken)
    attributes = otlp.resource(receiver.taken[0])
    assert attributes["service.name"] == "trainings"
    assert attributes["service.instance.id"] == "node7"
    assert attributes["deployment.environment.name"] == "lab"
    assert receiver.paths == {"/into/here"}
    assert receiver.headers["authorization"] == "Bearer x"


def test_a_receiver_that_is_down_is_reported_and_retried(records: Path) -> None:
    port = free_port()
    with (
        held(write_record(records, warm())),
        exporting(records, port, OTEL_EXPORTER_OTLP_TIMEOUT="2") as (process, url),
    ):
        wait_until(lambda: health(url)["up"] is False)
        assert "refused" in health(url)["error"]
        assert health(url)["last_success"] is None
        down = scraped(url)
        up = ("gauge", "warmwatch_export_up", frozenset({("export", "otlp")}))
        assert down[up] == 0
        assert not [key for key in down if key[1].startswith("warmwatch_export_last")]
        assert json.loads(get(url, "/status"))["warm"] is True
        assert "the daemon's export otlp: Transient error" in doctor(records, url)

        with otlp.receiver(port) as receiver:
            answers: list[dict[str, Any]] = []  # of which each is of one moment
            wait_until(lambda: answers.append(health(url)) or answers[-1]["up"])
            assert answers[-1]["error"] is None
            assert answers[-1]["last_success"] > 0
            assert receiver.taken
            wait_until(lambda: scraped(url)[up] == 1)

        wait_until(lambda: health(url)["up"] is False)
        process.terminate()
        _, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")


def test_a_hanging_receiver_delays_no_answer_and_no_exit(records: Path) -> None:
    with otlp.receiver() as receiver, held(write_record(records, warm())):
        receiver.go.clear()
        with exporting(records, receiver.port, OTEL_EXPORTER_OTLP_TIMEOUT="600") as (process, url):
            wait_until(lambda: receiver.posted)
            wait_until(lambda: json.loads(get(url, "/status"))["warm"])
            assert health(url) == {
                "export": "otlp",
                "up": None,
                "last_success": None,
                "error": None,
            }
            assert not [key for key in scraped(url) if "export" in key[1]]
            process.terminate()
            _, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")


def test_the_last_values_are_sent_at_exit(records: Path) -> None:
    steps = ("counter", "warmwatch_steps_total", frozenset({("run", "gpt2"), ("rank", "0")}))
    folder = write_record(records, live_slot(StepCounts(steps=9)))
    with (
        otlp.receiver() as receiver,
        held(folder),
        exporting(records, receiver.port, OTEL_METRIC_EXPORT_INTERVAL="3600000") as (process, url),
    ):
        wait_until(lambda: health(url)["up"])
        assert otlp.series(receiver.taken[-1])[steps] == 9
        update(folder, live_slot(StepCounts(steps=10)))
        wait_until(lambda: scraped(url)[steps] == 10)
        assert len(receiver.taken) == 1
        process.terminate()
        _, errors = process.communicate(timeout=240)
        assert (process.returncode, errors) == (0, "")
        assert len(receiver.taken) == 2
    assert otlp.series(receiver.taken[-1])[steps] == 10


@pytest.fixture
def without_opentelemetry(tmp_path: Path) -> dict[str, str]:
    """The environment of a process without what the extra brings; FastAPI brings the API."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('opentelemetry.sdk', 'opentelemetry.exporter'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    before = [path for path in sys.path if path]
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), *before])}


def refused(*arguments: str, **variables: str) -> str:
    """The error line of a daemon that exits immediately with code 2."""
    options = ("--address", "127.0.0.1:0", *arguments)
    done = completed("serve", *options, env=environment(**variables))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_without_the_extra_it_prints_the_command_that_installs_it(
    without_opentelemetry: dict[str, str],
) -> None:
    assert refused("--otlp", **without_opentelemetry) == (
        "warmwatch: what OTLP needs is not installed (No module named 'opentelemetry.exporter'); "
        "get it with: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
    )
