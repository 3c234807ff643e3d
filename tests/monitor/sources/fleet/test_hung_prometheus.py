"""A Prometheus server that never finishes its answer: commands end in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from warmwatch_monitor.client import fleet
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.sources.fleet import samples

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@contextmanager
def server(answer: bytes, rest: bytes) -> Iterator[str]:
    """Sends ``answer`` to each client, and then ``rest`` again and again for as long as it runs."""
    stopping = threading.Event()

    def serve(peer: socket.socket) -> None:
        with peer:
            try:
                peer.recv(65536)
                peer.sendall(answer)
                while not stopping.wait(0.01):
                    peer.sendall(rest)
            except OSError:
                return

    def accept() -> None:
        while not stopping.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(peer,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopping.set()


@pytest.mark.parametrize(
    ("answer", "rest"), [(b"", b""), (HEAD, b" ")], ids=["silent", "a byte at a time"]
)
def test_status_and_wait_end_in_time(
    answer: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout of each read alone would never come while bytes trickle in."""
    monkeypatch.setattr(fleet, "FLEET_SECONDS", 0.5)
    with server(answer, rest) as url:
        result = CliRunner().invoke(cli, ["status", "--prometheus", url])
        assert (result.exit_code, result.stdout) == (6, "")
        assert f"{url} has not answered within 0.5 s" in result.stderr


def test_the_timeout_of_a_wait_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FLEET_SECONDS", 3600.0)
    began = time.monotonic()
    with server(b"", b"") as url:
        result = CliRunner().invoke(cli, ["wait", "--prometheus", url, "--timeout", "1"])
    assert result.exit_code == 6
    assert "has not answered within" in result.stderr
    assert time.monotonic() - began < 3600


@pytest.mark.parametrize(
    ("answer", "rest", "words"),
    [
        (HEAD, b" " * 65536, "larger than 0 MiB"),
        (
            HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 100000\r\n\r\n"),
            b"[" * 50_000,
            "give the address of a Prom",
        ),
        (b"nonsense\r\n\r\n", b"", "nonsense"),
    ],
    ids=["endless", "deeply nested", "not HTTP"],
)
def test_an_invalid_answer_is_one_sentence(
    answer: bytes, rest: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "MiB" in words:
        monkeypatch.setattr(samples, "_LARGEST_REPLY", 1 << 19)
    with server(answer, rest) as url:
        result = CliRunner().invoke(cli, ["status", "--prometheus", url])
    assert result.exit_code == 6, result.output
    assert "does not answer as Prometheus" in result.stderr
    assert words in result.stderr
