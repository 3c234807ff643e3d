"""A real stall reaches a webhook through Prometheus and Alertmanager, and is resolved."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.daemon import daemon
from support.prometheus import answers, free_port, prometheus_process, scraping
from support.records import wait_until
from support.trainings import training

RULES = Path(__file__).parents[2] / "dashboards" / "rules"
ROUTE = """
route: {{receiver: hook, group_by: [alertname], group_wait: 0s, group_interval: 1s}}
receivers:
  - name: hook
    webhook_configs: [{{url: "{url}", send_resolved: true}}]
"""


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A receiver of Alertmanager's posts: its URL, and every alert that came, oldest first."""
    came: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.extend(json.loads(body)["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on the test's output."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", came
        finally:
            server.shutdown()


@contextmanager
def alertmanager(folder: Path, hook: str) -> Iterator[str]:
    """The address of a real Alertmanager that posts to ``hook``."""
    folder.mkdir()
    config, address = folder / "alertmanager.yml", f"127.0.0.1:{free_port()}"
    config.write_text(ROUTE.format(url=hook))
    command = [
        "prometheus-alertmanager",
        f"--config.file={config}",
        f"--storage.path={folder}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: answers(f"http://{address}/-/ready"))
            yield address
        finally:
            process.terminate()


def quick_rules(folder: Path) -> list[Path]:
    """The project's rules, with alerts that wait two seconds where they wait minutes."""
    alerts = folder / "alerts.yml"
    text = (RULES / "warmwatch.alerts.yml").read_text()
    alerts.write_text(re.sub(r"for: \d+m\n", "for: 2s\n", text))
    return [RULES / "warmwatch.rules.yml", alerts]


@pytest.mark.long  # a stall has to be one; the rules are tested in tests/dashboards
def test_the_alert_of_a_stalled_training_fires_and_resolves(records: Path, tmp_path: Path) -> None:
    """It stands still for as long as it takes to count as stalled: a minute."""
    body = """
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
train(c, o, 6); gate("stalled"); train(c, o, 6); gate("again")
"""
    with (
        webhook() as (hook, came),
        alertmanager(tmp_path / "am", hook) as address,
        training(records, body) as started,
        daemon(records) as url,
    ):
        config = scraping(url) + (
            f'alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{address}"]}}]}}]}}\n'
        )
        with prometheus_process(tmp_path, config, *quick_rules(tmp_path)):
            started.reach("stalled")
            wait_until(lambda: stalls(came))
            (alert,) = stalls(came)[:1]
            assert (alert["status"], alert["labels"]["run"]) == ("firing", "train")
            output = alert["annotations"]["summary"]
            assert re.match(r"train rank 0 on \S+ has made no step for 1m", output), output
            assert alert["labels"].keys() >= {"host", "instance", "launch", "rank"}
            assert alert["annotations"]["runbook_url"].endswith("how-to/alerts.md#warmwatchstalled")
            started.go()
            started.reach("again")
            wait_until(lambda: [a for a in stalls(came) if a["status"] == "resolved"])


def stalls(came: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [alert for alert in list(came) if alert["labels"]["alertname"] == "WarmwatchStalled"]
