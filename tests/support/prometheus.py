"""A real Prometheus on a free port, and its query API."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from support.records import wait_until

# Each second, so that a range of a few seconds holds what `rate` needs.
SCRAPING = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
  - job_name: warmwatch
    static_configs: [{{targets: ["{target}"]}}]
"""


def scraping(daemon: str) -> str:
    """The configuration that scrapes the daemon at this URL or address every second."""
    return SCRAPING.format(target=daemon.removeprefix("http://"))


@contextmanager
def prometheus_process(
    folder: Path, config: str, *rules: Path, web_config: Path | None = None
) -> Iterator[str]:
    """The base URL of a Prometheus that is ready; its files are in ``folder``.

    ``config`` is the text of its configuration, without the ``rules`` files to load. With the file
    ``web_config`` it uses TLS and requires a password; then it listens, and may not be ready yet.
    """
    file, address = folder / "prometheus.yml", f"127.0.0.1:{free_port()}"
    file.write_text(f"{config}\nrule_files: {json.dumps([str(path) for path in rules])}\n")
    command = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    if web_config is not None:
        command.append(f"--web.config.file={web_config}")
    with subprocess.Popen(command) as process:
        try:
            if web_config is not None:
                wait_until(lambda: listens(address))
                yield f"https://{address}"
            else:
                wait_until(lambda: answers(f"http://{address}/-/ready"))
                yield f"http://{address}"
        finally:
            process.terminate()


def ask(prometheus: str, path: str, **parameters: str) -> Any:
    """The ``data`` that its API answers with; an error in its own words."""
    url = f"{prometheus}/api/v1/{path}?{urlencode(parameters)}"
    try:
        with urlopen(url, timeout=60) as reply:
            return json.load(reply)["data"]
    except URLError as error:
        message = error.read().decode() if hasattr(error, "read") else error
        raise AssertionError(f"{parameters}: {message}") from error


def query(prometheus: str, expression: str) -> list[dict[str, Any]]:
    """The present result: each series with ``metric``, its labels, and ``value``."""
    return list(ask(prometheus, "query", query=expression)["result"])


def free_port() -> int:
    """A port that is free now."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host, int(port)), 60)):
            return True
    except ConnectionError:
        return False


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=60) as answer:
            return bool(answer.status == 200)
    except (URLError, ConnectionError):
        return False
