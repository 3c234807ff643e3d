"""A real stall reaches a webhook through Prometheus and the shipped Alertmanager, and is resolved.

Alerts that are posted to Alertmanager itself are one notification for each incident.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.daemon import daemon
from support.prometheus import answers, free_port, prometheus_process, scraping
from support.records import wait_until
from support.trainings import training

RULES = Path(__file__).parents[2] / "dashboards" / "rules"
SHIPPED = Path(__file__).parents[2] / "docker" / "alertmanager.yml"


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A receiver of Alertmanager's posts: its URL, and every notification, oldest first."""
    came: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append({"to": self.path.strip("/"), **json.loads(body)})
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
    """The address of a real Alertmanager with the shipped configuration, in seconds for minutes.

    Each of its receivers posts to ``hook``, under its name.
    """
    folder.mkdir()
    config, address = folder / "alertmanager.yml", f"127.0.0.1:{free_port()}"
    text = SHIPPED.read_text()
    for shipped, quick in (("wait: 30s", "wait: 2s"), ("wait: 5s", "wait: 1s"), (": 5m", ": 2s")):
        text = text.replace(shipped, quick)
    settings = yaml.safe_load(text)
    for receiver in settings["receivers"]:
        posts = {"url": hook + receiver["name"], "send_resolved": True}
        receiver["webhook_configs"] = [posts]
    config.write_text(yaml.safe_dump(settings))
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
    """The project's rules, which look back for seconds where they look back for minutes."""
    rules = []
    for name in ("warmwatch.rules.yml", "warmwatch.alerts.yml"):
        rules.append(folder / name)
        rules[-1].write_text((RULES / name).read_text().replace("[2m]", "[8s]"))
    return rules


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
            assert re.match(r"train has stalled for \d+", output), output
            assert alert["labels"].keys() == {"alertname", "owner", "run", "severity"}
            texts = alert["annotations"]
            assert texts["runbook_url"].endswith("how-to/alerts.md#warmwatchstalled")
            stalled = r"rank 0 on \S+: stalled, no step for 1m \d+s \(all ranks: 1 stalled\)"
            assert re.fullmatch(stalled, texts["first_rank"])
            assert re.fullmatch(r"on \S+: warmwatch stacks 'train'", texts["command"])
            started.go()
            started.reach("again")
            wait_until(lambda: [a for a in stalls(came) if a["status"] == "resolved"])


def stalls(came: list[dict[str, Any]]) -> list[dict[str, Any]]:
    alerts = [alert for one in list(came) if one["to"] == "team" for alert in one["alerts"]]
    return [alert for alert in alerts if alert["labels"]["alertname"] == "WarmwatchStalled"]


def post(address: str, *alerts: dict[str, str]) -> None:
    body = json.dumps([{"labels": labels} for labels in alerts]).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{address}/api/v2/alerts", body, headers)
    urllib.request.urlopen(request, timeout=60).close()


def test_each_incident_is_one_notification_to_whom_its_severity_concerns(tmp_path: Path) -> None:
    """A hang of one run, the end of another, 64 daemons behind a switch, and a GPU."""
    page, warning = {"severity": "critical"}, {"severity": "warning"}
    hang = {"run": "hang", "owner": "ada"}
    over = {"run": "over", "owner": "bob"}
    down = [
        {"alertname": "WarmwatchDaemonDown", "instance": f"n{node}", **warning}
        for node in range(64)
    ]
    with webhook() as (hook, came), alertmanager(tmp_path / "am", hook) as address:
        post(
            address,
            {"alertname": "WarmwatchStalledLong", **hang, **page},
            {"alertname": "WarmwatchStalled", **hang, **warning},
            {"alertname": "WarmwatchSlower", **hang, **warning},
            {"alertname": "WarmwatchRunFailed", **over, **warning},
            {"alertname": "WarmwatchRanksMissing", **over, **warning},
            *down,
            {"alertname": "WarmwatchScrapesFail", "instance": "m", **warning},
            {"alertname": "WarmwatchGpuError", "uuid": "GPU-1", **page},
        )
        wait_until(lambda: len(came) >= 6)
        found = sorted(
            (
                one["to"],
                min(alert["labels"]["alertname"] for alert in one["alerts"]),
                len(one["alerts"]),
            )
            for one in list(came)
        )
    assert found == [
        ("page", "WarmwatchGpuError", 1),
        ("page", "WarmwatchStalledLong", 1),
        ("team", "WarmwatchDaemonDown", 64),
        ("team", "WarmwatchRanksMissing", 1),
        ("team", "WarmwatchRunFailed", 1),
        ("team", "WarmwatchScrapesFail", 1),
    ]
