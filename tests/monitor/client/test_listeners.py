"""Port squatting: the default address is trusted only if the kernel identifies its owner."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.daemon import daemon
from support.records import held, warm, write_record
from support.users import ALICE, MALLORY, Process, someone
from support.values import replace
from warmwatch_monitor.cli import cli
from warmwatch_monitor.client.daemon import Daemon, connect, query_daemon, request
from warmwatch_monitor.client.listeners import Listener, distrust, listeners
from warmwatch_monitor.errors import ForeignDaemonError
from warmwatch_monitor.settings import Address, load, parse_address

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

_LISTEN = """
import socket
listener = socket.create_server({where!r}, family={family}, dualstack_ipv6={dual})
print(listener.getsockname()[1], flush=True)
"""
_SERVE = """
peer, _ = listener.accept(); peer.settimeout(5)
heard = b""
try:
    while b"\\r\\n\\r\\n" not in heard and (part := peer.recv(65536)): heard += part
except TimeoutError: pass
peer.close(); print(len(heard), b"secret" in heard, flush=True)
"""


@contextmanager
def squatter(uid: int, host: str = "127.0.0.1", port: int = 0) -> Iterator[tuple[Process, Address]]:
    """A process of ``uid`` that listens there."""
    dual = host == "::"
    family = "socket.AF_INET6" if dual else "socket.AF_INET"
    program = _LISTEN.format(where=(host, port), family=family, dual=dual)
    with someone(uid, program) as process:
        yield process, Address(host="127.0.0.1", port=int(process.line()))


@pytest.fixture
def as_default(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    return monkeypatch


def unnamed(address: Address, user: str = "nobody-has-this-name") -> Daemon:
    return Daemon(address, service_user=user)


@root
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_listener_of_another_user_is_not_trusted(host: str) -> None:
    with squatter(MALLORY, host) as (_, address):
        assert {one.uid for one in listeners(address)} == {MALLORY}
        assert distrust(listeners(address), "warmwatch") == f"it belongs to user {MALLORY}"
        assert distrust(listeners(address), str(MALLORY)) is None
        with pytest.raises(ForeignDaemonError, match=f"belongs to user {MALLORY}"):
            query_daemon(unnamed(address))


def test_the_caller_s_own_listener_is_trusted_and_a_missing_one_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(host="127.0.0.1", port=server.getsockname()[1])
        assert {one.uid for one in listeners(address)} == {os.geteuid()}
        assert distrust(listeners(address), "warmwatch") is None
    assert listeners(address) == frozenset()
    assert distrust(listeners(address), "warmwatch") == "its owner is unknown"


@root
def test_every_user_trusts_root_s_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, someone(ALICE) as alice:
        port = server.getsockname()[1]
        alice.do("from warmwatch_monitor.client.listeners import distrust, listeners")
        alice.do("from warmwatch_monitor.settings import Address")
        alice.do(f"found = listeners(Address(host='127.0.0.1', port={port}))")
        alice.do("assert distrust(found, 'warmwatch') is None")


@root
def test_a_second_listener_at_a_wildcard_address_counts() -> None:
    with (
        socket.create_server(("127.0.0.2", 0)) as mine,
        squatter(MALLORY, "0.0.0.0", 0) as (_, address),
    ):
        other = Address(host="127.0.0.2", port=mine.getsockname()[1])
        assert distrust(listeners(other), "warmwatch") is None
        assert distrust(listeners(replace(address, host="127.0.0.2")), "warmwatch") is not None


@root
def test_status_reads_the_records_if_another_user_took_the_default_port(
    tmp_path: Path, as_default: pytest.MonkeyPatch
) -> None:
    """And shows him nothing, not the question and not root's token."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    folder = write_record(tmp_path / "records", warm("mine"))
    as_default.setenv("WARMWATCH_TOKEN_FILE", str(token))
    as_default.setattr(
        "warmwatch.shared.places.directories", lambda *_: (str(tmp_path / "records"),)
    )
    with squatter(MALLORY) as (process, address), held(folder):
        as_default.setattr("warmwatch_monitor.settings.DEFAULT_ADDRESS", str(address))
        process.begin("exec(" + repr(_SERVE) + ")")
        result = CliRunner().invoke(cli, ["status"])
        assert result.exit_code == 0, result.output
        assert "mine" in result.stdout
        assert f"belongs to user {MALLORY}" in result.stderr
        with socket.create_connection((address.host, address.port)) as last:
            last.shutdown(socket.SHUT_WR)
            assert process.line() == "0 False"


@root
def test_a_daemon_of_the_service_user_or_an_explicit_one_is_queried(
    tmp_path: Path, as_default: pytest.MonkeyPatch
) -> None:
    folder = write_record(tmp_path, warm("mine"))
    with held(folder), daemon(tmp_path) as url:
        address = parse_address("test", url)
        assert query_daemon(unnamed(address))["runs"][0]["run"] == "mine"
        assert query_daemon(Daemon(address))["runs"][0]["run"] == "mine"


def test_a_listener_that_changes_while_connecting_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A squatter may accept the connection and close before the second check."""
    tables = iter(range(100))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(host="127.0.0.1", port=server.getsockname()[1])
        changing = lambda _: frozenset({Listener(uid=0, inode=next(tables))})  # noqa: E731
        monkeypatch.setattr("warmwatch_monitor.client.daemon.listeners", changing)
        with pytest.raises(ForeignDaemonError, match="its owner changes"):
            connect(unnamed(address), 5)
        monkeypatch.setattr("warmwatch_monitor.client.daemon.listeners", lambda _: frozenset())
        with pytest.raises(ForeignDaemonError, match="its owner is unknown"):
            connect(unnamed(address), 5)


def test_secrets_are_sent_only_to_an_explicit_address_or_over_tls(
    tmp_path: Path, as_default: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    environ = {"WARMWATCH_TOKEN_FILE": str(token)}
    settings = load(environ, os.geteuid(), {"token_file": str(token)})
    assert not settings.address_set
    for daemon_at, shown in (
        (Daemon(settings.address, settings.access), True),
        (Daemon(settings.address, settings.access, "warmwatch"), False),
        (Daemon(replace(settings.address, tls=True), settings.access, "warmwatch"), True),
    ):
        assert (b"secret" in request(daemon_at, "/status")) is shown
