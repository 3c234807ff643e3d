"""Which clients get an answer: real daemons over real sockets."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.daemon import completed, daemon_process
from support.records import environment, wait_until
from support.web import TOKEN, Authority, ask
from warmwatch_monitor.commands.cli import cli

pytestmark = pytest.mark.slow

EVERYWHERE = ("--address", "0.0.0.0:0")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def token(tmp_path: Path) -> str:
    """A file with the token."""
    return write(tmp_path / "token", f"{TOKEN}\n")


def refused(*arguments: str, **variables: str) -> str:
    """The message of a daemon that exits immediately."""
    done = completed("serve", *arguments, env=environment(**variables))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


def write(path: Path, text: str) -> str:
    """Put there whole: a daemon that reads meanwhile reads what was or what is."""
    new = path.with_name("new")
    new.write_text(text)
    return str(new.rename(path))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_non_loopback_address_requires_a_token_or_insecure(address: str) -> None:
    words = refused("--address", address)
    assert "can be reached from other machines and requires no authentication" in words
    for remedy in ("--token-file FILE", "127.0.0.1", "--insecure"):
        assert remedy in words


def test_tls_alone_does_not_authenticate_clients(authority: Authority) -> None:
    assert "requires no authentication" in refused(*EVERYWHERE, *authority.options("daemon"))


@pytest.mark.parametrize("how", ["option", "variable", "token"])
def test_a_non_loopback_address_is_served_with_insecure(
    tmp_path: Path, token: str, how: str
) -> None:
    options = {"option": ["--insecure"], "variable": [], "token": ["--token-file", token]}[how]
    chosen = {"WARMWATCH_INSECURE": "on"} if how == "variable" else {}
    with daemon_process(*EVERYWHERE, *options, "--dir", str(tmp_path), **chosen) as (_, url):
        assert ask(url).status == (401 if how == "token" else 200)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--token-file", "nowhere"), "nowhere: No such file or directory"),
        (("--token-file", "."), ".: it is a directory"),
        (("--token-file", "short"), "short holds no token of at least 16 characters"),
        (("--token-file", "long"), "long: it is larger than 1 MiB"),
        (("--token-file", "bytes"), "bytes is no text in UTF-8"),
        (("--tls-cert", "nowhere"), "nowhere: No such file or directory"),
        (("--tls-cert", "short"), "short, short: "),
        (("--tls-cert", "short", "--tls-key", "long"), "long: it is larger than 1 MiB"),
        (("--tls-key", "short"), "--tls-key is the key of a certificate; give --tls-cert too"),
        (("--address", "https://127.0.0.1:0"), "give --tls-cert FILE and --tls-key FILE"),
    ],
)
def test_an_unusable_file_is_refused_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("two words")
    (tmp_path / "bytes").write_bytes(b"\xff" * 20)
    with (tmp_path / "long").open("w") as file:  # OpenSSL would read all of it
        file.truncate(1 << 30)
    done = CliRunner().invoke(cli, ["serve", *options])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr


def test_the_token_is_required_except_for_the_probes(tmp_path: Path, token: str) -> None:
    with daemon_process("--token-file", token, "--dir", str(tmp_path)) as (_, url):
        stranger = ask(url)
        assert stranger.status == 401
        assert stranger.headers["www-authenticate"] == 'Bearer realm="warmwatch"'
        for right in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
            assert ask(url, "/metrics", Authorization=right).status == 200
            assert ask(url, Authorization=right).status == 200
        for wrong in (f"Bearer {TOKEN}x", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", "Basic !"):
            assert ask(url, Authorization=wrong).status == 401, wrong
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        assert ask(url, "/-/healthy").status == 200
        assert ask(url, "/docs").status == ask(url, "/").status == 401
        assert ask(url, "/-/healthy/").status == 401


def test_plain_bytes_do_not_harm_a_daemon_that_serves_tls(
    tmp_path: Path, authority: Authority
) -> None:
    options = authority.options("daemon")
    with daemon_process(*options, "--dir", str(tmp_path)) as (process, url):
        host, port = url.removeprefix("https://").split(":")
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b""):
            with socket.create_connection((host, int(port)), 60) as peer:
                peer.sendall(nonsense)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(100):
                    pass
        assert ask(url, tls=authority.trusted()).status == 200
        process.terminate()
        assert process.communicate(timeout=240)[1] == ""


def _source(url: str, tls: ssl.SSLContext | None = None, **headers: str) -> dict[str, object]:
    answer = json.loads(ask(url, tls=tls, **headers).body)
    (found,) = (one for one in answer["sources"] if one["source"] == "protection")
    return dict(found)


def test_a_token_is_replaced_without_a_restart(tmp_path: Path, token: str) -> None:
    """A change that cannot be used is reported, and the token before it remains."""
    with daemon_process("--token-file", token, "--dir", str(tmp_path)) as (process, url):
        wait_until(lambda: _source(url, **BEARER)["up"])
        for text in ("", "short"):
            write(Path(token), text)
            wait_until(lambda: "holds no token of" in str(_source(url, **BEARER)["error"]))
            assert not _source(url, **BEARER)["up"]
            assert ask(url).status == 401
        metrics = ask(url, "/metrics", **BEARER).body.decode()
        assert 'warmwatch_source_up{source="protection"} 0.0' in metrics
        write(Path(token), TOKEN[::-1])
        new = {"Authorization": f"Bearer {TOKEN[::-1]}"}
        wait_until(lambda: ask(url, **new).status == 200)
        assert ask(url, **BEARER).status == 401
        wait_until(lambda: _source(url, **new)["up"])
        process.terminate()
        reported, last = process.communicate(timeout=240)[1].splitlines()
    assert reported.endswith("what held before this change still holds")
    assert last.endswith("read again, and in use")


def test_a_certificate_is_replaced_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    """Key and certificate are two files: between the two changes the old pair is served."""

    def put(name: str, *kinds: str) -> None:
        for kind, file in zip(("cert", "key"), authority.sign(name), strict=True):
            if kind in kinds:
                (tmp_path / kind).write_bytes(file.read_bytes())

    put("daemon", "cert", "key")
    options = ("--tls-cert", f"{tmp_path}/cert", "--tls-key", f"{tmp_path}/key")
    with daemon_process(*options, "--dir", str(tmp_path)) as (_, url):
        before = _certificate(url)
        put("next", "cert")
        wait_until(lambda: not _source(url, authority.trusted())["up"])
        assert _certificate(url) == before
        put("last", "cert", "key")
        wait_until(lambda: _certificate(url) != before)
        wait_until(lambda: _source(url, authority.trusted())["up"])


def _certificate(url: str) -> str:
    host, port = url.removeprefix("https://").split(":")
    return ssl.get_server_certificate((host, int(port)))


def test_a_daemon_answers_only_requests_for_its_own_host_names(tmp_path: Path) -> None:
    own = ("localhost", "LOCALHOST.:10464", "127.0.0.1:1", "[::1]:10464", socket.gethostname())
    address = "192.0.2.7"  # no page has an address for its name that leads here by a trick
    foreign = ("evil.example", "localhost.evil.example:10464", "127.0.0.1.evil.example", "")
    with daemon_process("--dir", str(tmp_path)) as (_, url):
        for host in (*own, address):
            assert ask(url, Host=host).status == 200, host
        for host in foreign:
            reply = ask(url, Host=host)
            assert reply.status == 421, host
            assert b"start it with --allowed-host" in reply.body


def test_all_endpoints_are_read_only_and_head_answers_like_get(tmp_path: Path) -> None:
    paths = ("/status", "/metrics", "/", "/docs", "/openapi.json", "/-/healthy", "/status?run=x")
    with daemon_process("--dir", str(tmp_path)) as (_, url):
        for path in paths:
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
                reply = ask(url, path, method=method)
                allowed = set(reply.headers["allow"].split(", "))
                assert (reply.status, allowed) == (405, {"GET", "HEAD"}), method
            head, get = ask(url, path, method="HEAD"), ask(url, path)
            assert (head.status, head.body) == (get.status, b"")
            assert head.headers["content-type"] == get.headers["content-type"]
            assert int(head.headers["content-length"]) > 0


def test_the_access_log_names_the_client(tmp_path: Path, token: str) -> None:
    options = ("--token-file", token, "--dir", str(tmp_path))
    with daemon_process(*options, WARMWATCH_LOG_FORMAT="logfmt") as (process, url):
        assert process.stderr is not None
        for headers in (BEARER, BEARER, {}):  # a page has a request each second: one line
            ask(url, **headers)
        lines = (line for line in process.stderr if "event=access" in line)
        assert [next(lines).partition(" client=")[2].rstrip() for _ in range(2)] == [
            "127.0.0.1 path=/status",
            "127.0.0.1 path=/status refused=401",
        ]
