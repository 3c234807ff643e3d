"""Commands that authenticate to a daemon and to Prometheus, with and without TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.daemon import daemon_process
from support.records import held, wait_until, warm, write_record
from support.web import TOKEN, Authority, ask
from warmwatch_monitor.base.errors import NO_RECENT_RUN
from warmwatch_monitor.commands.cli import cli


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMWATCH_GPU_INTERVAL", "off")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[tuple[str, Path]]:
    """A daemon with TLS and a token: its address and the folder of its files."""
    place = tmp_path_factory.mktemp("guarded")
    (place / "token").write_text(f"{TOKEN}\n")
    for source, name in zip(authority.sign("client"), ("cert", "key"), strict=True):
        (place / name).write_bytes(source.read_bytes())
    options = ("--dir", str(place / "records"), "--token-file", str(place / "token"))
    trusted = authority.trusted()
    with (
        held(write_record(place / "records", warm())),
        daemon_process(*options, *authority.options("daemon")) as (_, url),
    ):
        known = f"Bearer {TOKEN}"
        wait_until(lambda: b'"warm":true' in ask(url, tls=trusted, Authorization=known).body)
        yield url, place


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a busy machine may exceed the default timeout."""
    monkeypatch.setattr("warmwatch_monitor.client.daemon.ANSWER_SECONDS", 120.0)
    monkeypatch.setattr("warmwatch_monitor.client.answers.HUNG_SECONDS", 120.0)


def run(*words: str, **variables: str) -> Result:
    return CliRunner().invoke(cli, list(words), env=variables)


def shown(place: Path, authority: Authority, *more: str) -> tuple[str, ...]:
    files = ("--ca", str(authority.file), "--cert", f"{place}/cert", "--key", f"{place}/key")
    return (*files, *more)


@pytest.mark.parametrize("command", [["status"], ["wait", "--timeout", "60"]])
def test_a_command_sends_the_credentials_that_the_daemon_requires(
    guarded: tuple[str, Path], authority: Authority, command: list[str]
) -> None:
    url, place = guarded
    how = shown(place, authority, "--token-file", f"{place}/token")
    done = run(*command, "--address", url, *how)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    assert "gpt2: warm" in done.stdout


def test_the_environment_can_name_the_files(
    guarded: tuple[str, Path], authority: Authority
) -> None:
    url, place = guarded
    done = run(
        "status",
        WARMWATCH_ADDRESS=url,
        WARMWATCH_TOKEN_FILE=f"{place}/token",
        WARMWATCH_CA=str(authority.file),
        WARMWATCH_CERT=f"{place}/cert",
        WARMWATCH_KEY=f"{place}/key",
    )
    assert (done.exit_code, done.stderr) == (0, "")


def test_missing_credentials_are_reported(guarded: tuple[str, Path], authority: Authority) -> None:
    url, place = guarded
    token = ("--token-file", f"{place}/token")
    wrong = place / "wrong"
    wrong.write_text(TOKEN[::-1])
    clear = url.replace("https://", "http://")
    for words, expected in (
        ([url, *token], "TLS fails (unable to get local issuer certificate); give --ca"),
        (
            [url, *shown(place, authority)],
            "requires credentials (HTTP 401); give valid ones with --token-file",
        ),
        ([url, *shown(place, authority), "--token-file", str(wrong)], "HTTP 401"),
        ([clear, *token], "does not answer as warmwatch does"),
    ):
        done = run("status", "--address", *words)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (6, "", 1)
        assert expected in done.stderr


def test_an_explicit_address_requires_valid_credentials(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "wrong").write_text(TOKEN[::-1])
    records = tmp_path / "records"
    options = ("--dir", str(records), "--token-file", str(tmp_path / "token"))
    with held(write_record(records, warm())), daemon_process(*options) as (_, url):
        token, wrong = ({"WARMWATCH_TOKEN_FILE": f"{tmp_path}/{one}"} for one in ("token", "wrong"))
        named = {"WARMWATCH_ADDRESS": url}
        wait_until(lambda: run("status", **named, **token).exit_code == 0)
        for refused in (named, named | wrong):
            done = run("status", WARMWATCH_DIR=str(records), **refused)
            assert (done.exit_code, done.stdout) == (6, ""), refused


def test_https_to_a_plain_http_server_is_reported(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path)) as (_, url):
        done = run("status", "--address", url.replace("http://", "https://"))
        assert done.exit_code == 6
        assert "TLS fails (wrong version number)" in done.stderr
        assert run("status", "--address", url).exit_code == 5


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--token-file", "a", "--user-file", "b"], "--token-file and --user-file exclude each"),
        (["--key", "a"], "--key is the key of a certificate; give --cert too"),
        (["--token-file", ""], "--token-file is empty: name a file, or leave the option out"),
        (["--token-file", "/nowhere"], "--token-file: cannot read /nowhere: no such file"),
        (["--user-file", __file__], "does not hold one line of text"),
        (["--ca", "/nowhere"], "--ca: /nowhere: no such file"),
        (["--ca", __file__], f"--ca: {__file__}: "),
        (["--cert", __file__], f"--cert: {__file__}: "),
    ],
)
def test_unusable_credential_files_are_a_usage_error(words: list[str], expected: str) -> None:
    done = run("status", "--address", "https://127.0.0.1:9", *words)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert expected in done.stderr


_BASIC = "Basic YWxpY2U6b3BlbiBzZXNhbWU="  # alice:open sesame


class _Prometheus(BaseHTTPRequestHandler):
    """Answers a valid token with an empty result; redirects other requests to another host name."""

    requested: list[tuple[str, str | None]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        who = self.headers["Authorization"]
        self.requests.append((self.path, who))
        self.send_response(200 if who in (f"Bearer {TOKEN}", _BASIC) else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": {"result": []}}).encode())

    def log_message(self, *_: object) -> None:
        """In silence."""


@contextmanager
def prometheus(
    authority: Authority, *, certificates: bool = False
) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.file)
    context.load_cert_chain(*authority.sign("prometheus"))
    requested: list[tuple[str, str | None]] = []
    handler = type("Handler", (_Prometheus,), {"requests": requested})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", requested
        finally:
            server.shutdown()
            thread.join()


def test_prometheus_gets_the_same_credentials(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with prometheus(authority) as (url, requested):
        how = ("--ca", str(authority.file), "--token-file", str(tmp_path / "token"))
        assert run("status", "--prometheus", url, *how).exit_code == 5
        assert {who for _, who in requested} == {f"Bearer {TOKEN}"}
        (tmp_path / "user").write_text("alice:open sesame\n")
        user = (*how[:2], "--user-file", str(tmp_path / "user"))
        assert run("status", "--prometheus", url, *user).exit_code == 5
        refused = run("status", "--prometheus", url, *how[:2])
        assert refused.exit_code == 6
        assert f"{url} answers with HTTP 401; give --token-file or --user-file" in refused.stderr
        unknown = run("status", "--prometheus", url, *how[2:])
        assert "certificate" in unknown.stderr


def test_a_client_certificate_is_sent_to_a_server_that_requires_one(
    tmp_path: Path, authority: Authority
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    cert, key = map(str, authority.sign("client"))
    files = ("--ca", str(authority.file), "--token-file", str(tmp_path / "token"))
    with prometheus(authority, certificates=True) as (url, _):
        shown = run("status", "--prometheus", url, *files, "--cert", cert, "--key", key)
        assert (shown.exit_code, NO_RECENT_RUN in shown.output) == (5, True), shown.output
        refused = run("status", "--address", url, *files)
        assert "ends the connection; it may ask for a certificate: give --cert" in refused.stderr
