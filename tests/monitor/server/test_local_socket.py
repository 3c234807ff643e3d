"""The UNIX socket: the kernel identifies both its listener and its clients."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from warmwatch_monitor.cli import cli
from warmwatch_monitor.client.daemon import Daemon, query_daemon
from warmwatch_monitor.client.listeners import connected_locally
from warmwatch_monitor.errors import DaemonError
from warmwatch_monitor.server.credentials import local_client
from warmwatch_monitor.server.listening import local_listener
from warmwatch_monitor.settings import Address, load

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
RAW = """
import socket
def raw(path, target):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        peer.sendall(f"GET {target} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        return int(peer.recv(64).split()[1])
"""
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
    return Daemon(NOWHERE, service_user="nobody-has-this-name", sockets=(str(path),))


def test_commands_prefer_the_socket_and_send_the_token_to_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "web.yml").write_text("bearer_token_files: [token]\n")
    path = tmp_path / "socket"
    settings = load(
        {"WARMWATCH_SOCKET": str(path)}, os.geteuid(), {"token_file": str(tmp_path / "token")}
    )
    options = ("--dir", str(tmp_path), "--web-config", str(tmp_path / "web.yml"))
    with (
        held(write_record(tmp_path, warm("mine"))),
        daemon_process(*options, WARMWATCH_SOCKET=str(path)) as (process, _),
    ):
        daemon = replace(default_daemon(path), access=settings.access)
        wait_until(lambda: query_daemon(daemon)["runs"])
        assert ask(str(path), Authorization=f"Bearer {TOKEN}").status == 200
        assert ask(str(path), Authorization="Bearer wrong").status == 401
        process.terminate()
        process.wait(timeout=240)
    assert not path.exists()


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
        config = records.parent / "web.yml"
        (records.parent / "token").write_text(TOKEN)
        config.write_text("bearer_token_files: [token]\n")
        options = ("--dir", str(records), "--web-config", str(config))
        stack.enter_context(daemon_process(*options, WARMWATCH_SOCKET=str(path)))
        wait_until(lambda: len(_runs(ask(str(path)).body)) == 2)
        yield str(path)


def _runs(body: bytes) -> list[Any]:
    return [run["run"] for run in json.loads(body)["runs"]]


@root
def test_a_local_user_reads_their_own_runs_without_the_required_token() -> None:
    program = "from warmwatch_monitor.client.daemon import Daemon, query_daemon\n"
    program += "from warmwatch_monitor.settings import Address\n"
    program += RAW
    with protected() as path, someone(ALICE, program) as alice:
        assert _runs(ask(path).body) == [f"of-{ALICE}@{ALICE}", f"of-{MALLORY}@{MALLORY}"]
        daemon = f"Daemon(Address('127.0.0.1', 9), service_user='0', sockets=({path!r},))"
        alice.begin(f"print([run['run'] for run in query_daemon({daemon})['runs']], flush=True)")
        assert alice.line() == str([f"of-{ALICE}@{ALICE}"])
        for name, status in ((f"of-{ALICE}", 200), (f"of-{MALLORY}", 404)):
            assert alice.line() == "done"
            alice.begin(f"print(raw({path!r}, '/status?run={name}'), flush=True)")
            assert alice.line() == str(status), "the own name of an own run"


def test_the_client_of_a_socket_is_identified_by_its_user() -> None:
    for uid, owner in ((0, None), (os.geteuid(), None), (ALICE, ALICE)):
        client = local_client(uid)
        assert client is not None
        assert client.owner_uid == owner
    assert local_client(65_534) is None, "the kernel shows many users as this one"


@root
def test_another_user_s_socket_is_not_trusted() -> None:
    program = "import socket; listener = socket.socket(socket.AF_UNIX)\n"
    with shared() as place, someone(MALLORY, program) as mallory:
        path = str(place / "socket")
        mallory.do(f"listener.bind({path!r}); listener.listen()")
        assert connected_locally([path], "nobody-has-this-name", 5) is None
        with connected_locally([path], str(MALLORY), 5) or socket.socket() as trusted:
            assert trusted.family == socket.AF_UNIX


@root
def test_commands_reach_the_daemon_although_another_process_took_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, path = tmp_path / "records", tmp_path / "socket"
    listens = "import socket; listener = socket.create_server(('127.0.0.1', 0))\n"
    listens += "print(listener.getsockname()[1], flush=True)\n"
    with (
        held(write_record(records, warm("mine"))),
        daemon_process("--dir", str(records), WARMWATCH_SOCKET=str(path)),
        someone(MALLORY, listens) as mallory,
    ):
        squatted = f"127.0.0.1:{mallory.line()}"
        monkeypatch.delenv("WARMWATCH_DIR")
        monkeypatch.setattr("warmwatch_monitor.settings.DEFAULT_ADDRESS", squatted)
        monkeypatch.setenv("WARMWATCH_SOCKET", str(path))
        wait_until(lambda: CliRunner().invoke(cli, ["status", "mine"]).exit_code == 0)
        result = CliRunner().invoke(cli, ["status", "mine"])
        assert (result.exit_code, result.stderr) == (0, "")


def test_only_a_daemon_at_the_default_address_listens_by_default(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    own = tmp_path / "warmwatch-monitor" / "socket"
    settings = load(environ, os.geteuid(), {})
    assert settings.sockets == ("/run/warmwatch-monitor/socket", str(own))
    settings = replace(settings, sockets=(str(tmp_path / "none" / "there" / "socket"), str(own)))
    with local_listener(settings) as listener:
        assert listener is not None
        assert listener.getsockname() == str(own)
        assert own.stat().st_mode & 0o777 == 0o666, "the guard decides who may read what"
    assert not own.exists()
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


@pytest.mark.parametrize("what", ["socket", "directory"])
def test_a_link_in_the_place_of_what_the_daemon_made_changes_no_other_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As of another user who may rename what is in the directory."""
    path, other = tmp_path / "own" / "socket", tmp_path / "other"
    other.touch(0o600) if what == "socket" else other.mkdir(0o700)
    before = other.stat().st_mode

    def replaced(made: Path) -> None:
        made.rename(tmp_path / "moved away")
        made.symlink_to(other)

    class Replaced(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            replaced(path)

    make = Path.mkdir

    def making(directory: Path) -> None:
        make(directory)
        if what == "directory":
            replaced(directory)

    if what == "socket":
        monkeypatch.setattr("warmwatch_monitor.server.listening.socket.socket", Replaced)
    monkeypatch.setattr(Path, "mkdir", making)
    settings = load({"WARMWATCH_SOCKET": str(path)}, os.geteuid(), {})
    with pytest.raises(DaemonError, match="cannot listen on"), local_listener(settings):
        pass
    assert other.stat().st_mode == before


@pytest.mark.parametrize("call", ["os.open", "fcntl.flock"])
def test_a_daemon_listens_in_a_directory_that_it_cannot_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As in a directory that is writable and not readable, and on a filesystem without locks."""

    opens = os.open

    def refuse(what: Any, flags: int, *rest: Any, **named: Any) -> int:
        if call == "os.open" and flags & os.O_PATH:  # this needs no permission to read
            return opens(what, flags, *rest, **named)
        raise PermissionError

    settings = load({"WARMWATCH_SOCKET": str(tmp_path / "socket")}, os.geteuid(), {})
    with monkeypatch.context() as patched:
        patched.setattr(call, refuse)
        with local_listener(settings) as listener:
            assert listener is not None


def test_one_of_the_daemons_that_start_at_the_same_moment_listens(tmp_path: Path) -> None:
    """First without their directory, then with the socket of a daemon that was killed."""
    path = tmp_path / "new" / "socket"
    settings = load({"WARMWATCH_SOCKET": str(path)}, os.geteuid(), {})
    together = threading.Barrier(4, timeout=60)

    def listens() -> bool:
        together.wait()
        with ExitStack() as stack:
            try:
                stack.enter_context(local_listener(settings))
            except DaemonError:
                return False
            finally:
                together.wait()  # all have tried, and the first one still listens
            return True

    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            assert sum(one.result() for one in [pool.submit(listens) for _ in range(4)]) == 1
            with socket.socket(socket.AF_UNIX) as killed:
                killed.bind(str(path))
