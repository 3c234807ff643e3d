"""The UNIX socket: the kernel identifies both its listener and its clients."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.daemon import daemon_process
from support.records import held, wait_until, warm, write_record
from support.users import ALICE, MALLORY, shared, someone
from support.values import replace
from support.web import TOKEN, Reply
from warmwatch_monitor.base.access import Access
from warmwatch_monitor.base.errors import DaemonError, NoDaemonError
from warmwatch_monitor.base.settings import Address, load
from warmwatch_monitor.client.daemon import Daemon, connect
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.server.listening import local_listener

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
NOWHERE = Address(host="127.0.0.1", port=9)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def ask(path: str, what: str = "/status", **headers: str) -> Reply:
    connection = _Connection(path)
    connection.request("GET", what, headers=headers)
    reply = connection.getresponse()
    return Reply(reply.status, dict(reply.getheaders()), reply.read())


def default_daemon(path: Path) -> Daemon:
    """The default address, at which nothing listens, and a socket."""
    return Daemon(NOWHERE, sockets=(str(path),), service_user="nobody-has-this-name")


@contextmanager
def protected() -> Iterator[str]:
    """A daemon with the runs of two users that requires a token; the path of its socket."""
    with shared() as records, ExitStack() as stack:
        path = records.parent / "socket"
        for uid in (ALICE, MALLORY):
            folder = write_record(records, warm(f"of-{uid}"), name=str(uid))
            for one in (folder, *folder.iterdir()):
                os.chown(one, uid, uid)
            stack.enter_context(held(folder))
        token = records.parent / "token"
        token.write_text(TOKEN)
        options = ("--dir", str(records), "--token-file", str(token))
        stack.enter_context(daemon_process(*options, WARMWATCH_SOCKET=str(path)))
        wait_until(lambda: len(_runs(ask(str(path)).body)) == 2)
        yield str(path)


def _runs(body: bytes) -> list[Any]:
    return [run["run"] for run in json.loads(body)["runs"]]


@root
def test_if_a_token_is_required_only_root_and_the_daemons_user_can_connect() -> None:
    """They need no token there."""
    connects = "import socket\npeer = socket.socket(socket.AF_UNIX)\n"
    with protected() as path, someone(ALICE, connects) as alice:
        assert _runs(ask(path).body) == [f"of-{ALICE}@{ALICE}", f"of-{MALLORY}@{MALLORY}"]
        alice.begin(f"print(peer.connect_ex({path!r}) == {errno.EACCES}, flush=True)")
        assert alice.line() == "True"


def test_commands_of_other_users_then_read_the_records_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(socket.socket):
        def connect(self, _address: Any) -> None:
            raise PermissionError

    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("WARMWATCH_SOCKET", str(tmp_path / "socket"))
    monkeypatch.setattr("warmwatch_monitor.client.daemon.socket.socket", Refusing)
    with held(write_record(tmp_path, warm("mine"))):
        done = CliRunner().invoke(cli, ["status"])
    assert (done.exit_code, "mine: warm" in done.stdout) == (0, True)
    assert "requires credentials; give its address with --address and --token-file" in done.stderr


@root
def test_another_user_s_socket_is_not_trusted() -> None:
    program = "import socket; listener = socket.socket(socket.AF_UNIX)\n"
    with shared() as place, someone(MALLORY, program) as mallory:
        path = place / "socket"
        mallory.do(f"listener.bind({str(path)!r}); listener.listen()")
        daemon = default_daemon(path)
        with pytest.raises(NoDaemonError):
            connect(daemon, 5)
        with connect(replace(daemon, service_user=str(MALLORY)), 5) as trusted:
            assert trusted.family == socket.AF_UNIX


@root
def test_no_command_asks_who_took_the_default_port_or_sends_a_token_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a daemon its socket answers, without one the records are read."""
    records, path = tmp_path / "records", tmp_path / "socket"
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("WARMWATCH_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("WARMWATCH_SOCKET", str(path))
    listens = "import socket; listener = socket.create_server(('127.0.0.1', 0))\n"
    listens += "print(listener.getsockname()[1], flush=True); listener.settimeout(0)\n"
    listens += "def accepted():\n try: return bool(listener.accept())\n"
    listens += " except BlockingIOError: return False\n"
    with held(write_record(records, warm("mine"))), someone(MALLORY, listens) as mallory:
        squatted = f"127.0.0.1:{mallory.line()}"
        monkeypatch.setattr("warmwatch_monitor.base.settings.DEFAULT_ADDRESS", squatted)
        monkeypatch.setenv("WARMWATCH_DIR", str(records))
        assert CliRunner().invoke(cli, ["status", "mine"]).exit_code == 0
        monkeypatch.delenv("WARMWATCH_DIR")
        with daemon_process("--dir", str(records), WARMWATCH_SOCKET=str(path)):
            wait_until(lambda: CliRunner().invoke(cli, ["status", "mine"]).exit_code == 0)
            result = CliRunner().invoke(cli, ["status", "mine"])
            assert (result.exit_code, result.stderr) == (0, "")
        mallory.begin(
            "exec('try: listener.accept()\\nexcept BlockingIOError: print(0, flush=True)')"
        )
        assert mallory.line() == "0", "no client came"


def test_only_a_daemon_at_the_default_address_listens_by_default(memory: Path) -> None:
    """In ``memory``: the name of a socket has at most 107 bytes."""
    environ = {"XDG_RUNTIME_DIR": str(memory)}
    own = memory / "warmwatch-monitor" / "socket"
    settings = load(environ, os.geteuid(), {})
    assert settings.sockets == ("/run/warmwatch-monitor/socket", str(own))
    settings = replace(settings, sockets=(str(memory / "none" / "there" / "socket"), str(own)))
    with local_listener(settings) as listener:
        assert listener is not None
        assert listener.getsockname() == str(own)
        assert own.stat().st_mode & 0o777 == 0o666
    assert not own.exists()
    own.parent.rmdir()
    token = replace(settings, access=Access(token_file="token"))
    before = os.umask(0o077)
    try:
        with local_listener(token):
            assert own.stat().st_mode & 0o777 == 0o600
            assert own.parent.stat().st_mode & 0o777 == 0o755
    finally:
        assert os.umask(before) == 0o077, "it is as it was"
    with local_listener(replace(settings, address=NOWHERE)) as listener:
        assert listener is None
    off = load({**environ, "WARMWATCH_SOCKET": "off"}, os.geteuid(), {})
    with local_listener(off) as listener:
        assert listener is None


def test_a_stale_socket_is_replaced_and_an_active_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    settings = load({"WARMWATCH_SOCKET": str(path)}, os.geteuid(), {})
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with (
        local_listener(settings) as listener,
        pytest.raises(DaemonError, match="address already in use; set WARMWATCH_SOCKET"),
        local_listener(settings),
    ):
        assert listener is not None
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(DaemonError, match="address already in use"), local_listener(settings):
        pass
    assert path.read_text() == "a file"
