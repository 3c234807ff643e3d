"""Which clients get an answer: real daemons over real sockets."""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.daemon import completed, daemon_process
from support.nvml import Standin, board
from support.records import environment, held, wait_until, warm, write_record
from support.web import HASH, PASSWORD, TOKEN, Authority, ask, basic
from warmwatch_monitor.cli import cli
from warmwatch_monitor.server.guard import allowed_names, is_address, is_allowed

pytestmark = pytest.mark.slow

EVERYWHERE = ("--address", "0.0.0.0:0")
USERS = f"basic_auth_users: {{alice: {HASH}}}\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def refused(*arguments: str, **variables: str) -> str:
    """The message of a daemon that exits immediately."""
    done = completed("serve", *arguments, env=environment(**variables))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


def tls(authority: Authority, more: str = "") -> str:
    cert, key = authority.sign("daemon")
    return f"tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n{more}"


def write(place: Path, text: str) -> str:
    """Put there whole: a daemon that reads meanwhile reads what was or what is."""
    (place / "web.new").write_text(text)
    return str((place / "web.new").rename(place / "web.yml"))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_non_loopback_address_requires_authentication_or_insecure(address: str) -> None:
    words = refused("--address", address)
    assert "can be reached from other machines and requires no authentication" in words
    for remedy in ("--web-config FILE", "127.0.0.1", "--insecure"):
        assert remedy in words


def test_tls_alone_does_not_authenticate_clients(tmp_path: Path, authority: Authority) -> None:
    config = write(tmp_path, tls(authority))
    assert "requires no authentication" in refused(*EVERYWHERE, "--web-config", config)


@pytest.mark.parametrize("how", ["option", "variable", "users"])
def test_a_non_loopback_address_is_served_with_insecure(tmp_path: Path, how: str) -> None:
    options = {
        "option": ["--insecure"],
        "variable": [],
        "users": ["--web-config", write(tmp_path, USERS)],
    }[how]
    chosen = {"WARMWATCH_INSECURE": "on"} if how == "variable" else {}
    with daemon_process(*EVERYWHERE, *options, "--dir", str(tmp_path), **chosen) as (_, url):
        assert ask(url).status == (401 if how == "users" else 200)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty; its keys are tls_server_config"),
        ("basic_auth_users: {}\n", "every key in it is empty"),
        ("a: [", "it is not YAML"),
        ("basic_auth_users: {alice: 2001-99-99}\n", "it cannot be read as YAML: ValueError"),
        ("[" * 100_000, "it cannot be read as YAML: RecursionError"),
        ("a: !!bool b\n", "it cannot be read as YAML: KeyError"),
        ('bearer_token_files: ["a\\0b"]\n', "is no path: embedded null"),
        (f"bearer_token_sha256: [{sha256().hexdigest().upper()}]\n", "the digest of no token"),
        ("- a\n", "the file is no mapping of names"),
        ("http_server_config: {http2: true}\n", "has 'http_server_config', which cannot be used"),
        ("basic_auth_users: {alice: secret}\n", "'alice' has no bcrypt hash"),
        (USERS.replace("$04$", "$31$"), "the hash of 'alice' has cost 31"),
        ("bearer_token_sha256: [abc]\n", "each is 64 hexadecimal digits"),
        ("bearer_token_sha256: abc\n", "bearer_token_sha256 is no list"),
        ("bearer_tokens: {file: a}\n", "bearer_tokens is no list"),
        ("bearer_tokens: [{user: alice}]\n", "needs either file or sha256"),
        (f"bearer_tokens: [{{file: a, sha256: {'a' * 64}}}]\n", "needs either file or sha256"),
        (f"bearer_tokens: [{{sha256: {'a' * 64}, user: true}}]\n", "neither a user's name nor"),
        (f"bearer_tokens: [{{sha256: {'a' * 64}, user: }}]\n", "neither a user's name nor a uid"),
        (f"bearer_tokens: [{{sha256: {'a' * 64}, user: no one}}]\n", "no user is named 'no one'"),
        (f'bearer_tokens: [{{sha256: {"a" * 64}, user: "a\\0b"}}]\n', "no user is named"),
        (USERS.replace("alice", r'"\ud800"'), "has no bcrypt hash"),
        (
            f"bearer_tokens: [{{sha256: {'a' * 64}}}, {{sha256: {'a' * 64}, user: 7, name: b}}]",
            "sha256:aaaaaaaa and b hold the same token for different users",
        ),
        ("bearer_token_files: [nowhere]\n", "nowhere: no such file or directory"),
        ("bearer_token_files: [.]\n", "is no regular file"),
        ("bearer_token_files: [web.yml]\n", "holds no token of at least 16 characters"),
        ("tls_server_config: {cert_file: a}\n", "needs cert_file and key_file"),
        ("tls_server_config: {cert_file: a, key_file: b}\n", "a: no such file or directory"),
        (
            "tls_server_config: {cert_file: web.yml, key_file: web.yml}\n",
            "tls_server_config: ",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}\n",
            "belong together",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}\n",
            "min_version: 'TLS10' cannot be used; TLS12, TLS13 can",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}\n",
            "client_auth_type: 'RequestClientCert' cannot be used",
        ),
    ],
)
def test_an_unusable_credentials_file_is_refused_with_a_message(
    tmp_path: Path, text: str, words: str
) -> None:
    done = CliRunner().invoke(cli, ["serve", "--web-config", write(tmp_path, text)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"warmwatch: --web-config: {tmp_path}/web.yml: ")
    assert words in done.stderr


def test_an_endless_credentials_file_is_refused_before_it_is_read_completely(
    tmp_path: Path, authority: Authority
) -> None:
    """OpenSSL would read all of a key, and of a token only the beginning would count."""
    cert, _ = authority.sign("server")
    with (tmp_path / "long").open("w") as file:
        file.write(TOKEN)
        file.truncate(1 << 30)
    for text in (
        f"tls_server_config: {{cert_file: {cert}, key_file: long}}\n",
        "bearer_token_files: [long]\n",
    ):
        assert "long has more than 1 MiB" in refused("--web-config", write(tmp_path, text))


def test_a_missing_credentials_file_is_refused_with_a_message(tmp_path: Path) -> None:
    errors = refused(WARMWATCH_WEB_CONFIG=str(tmp_path / "web.yml"))
    assert "no such file or directory" in errors


def test_an_https_address_needs_a_certificate() -> None:
    assert "give --web-config FILE" in refused("--address", "https://127.0.0.1:0")


def test_a_token_or_password_is_required_except_for_the_probes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    other = sha256(b"another token").hexdigest()
    text = f"{USERS}bearer_token_files: [token]\nbearer_token_sha256: [{other}]\n"
    config = write(tmp_path, text)
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (_, url):
        stranger = ask(url)
        assert stranger.status == 401
        assert stranger.headers["www-authenticate"]
        for right in (f"Bearer {TOKEN}", "bearer another token", basic("alice", PASSWORD)):
            assert ask(url, "/metrics", Authorization=right).status == 200
            assert ask(url, Authorization=right).status == 200
        for wrong in (
            *(f"Bearer {TOKEN}x", "Bearer", "Bearer ", TOKEN, "Basic", "Basic !", "Digest x"),
            *(basic("alice", "open"), basic("bob", PASSWORD), basic("", ""), basic("alice", "")),
            *(basic("alice", PASSWORD + "\0"), basic("alice", "x" * 99)),
        ):
            assert ask(url, Authorization=wrong).status == 401, wrong
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        assert ask(url, "/-/healthy").status == 200
        assert ask(url, "/docs").status == ask(url, "/").status == 401
        assert ask(url, "/-/healthy/").status == 401


def test_a_client_certificate_can_be_required(tmp_path: Path, authority: Authority) -> None:
    more = f"  client_ca_file: {authority.file}\n  client_auth_type: RequireAndVerifyClientCert\n"
    config = write(tmp_path, tls(authority, more))
    with daemon_process(*EVERYWHERE, "--web-config", config, "--dir", str(tmp_path)) as (_, url):
        assert url.startswith("https://")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(_local(url), tls=authority.trusted())
        known = authority.trusted()
        known.load_cert_chain(*authority.sign("client"))
        assert ask(_local(url), tls=known).status == 200


def test_plain_bytes_do_not_harm_a_daemon_that_serves_tls(
    tmp_path: Path, authority: Authority
) -> None:
    config = write(tmp_path, tls(authority))
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (process, url):
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


def _local(url: str) -> str:
    return url.replace("0.0.0.0", "127.0.0.1")


def _web_config(url: str, authorization: str) -> dict[str, object]:
    answer = json.loads(ask(url, Authorization=authorization).body)
    (found,) = (one for one in answer["sources"] if one["source"] == "web_config")
    return dict(found)


def test_a_token_is_replaced_without_a_restart(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    config = write(tmp_path, "bearer_token_files: [token]\n")
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (_, url):
        assert ask(url, Authorization=f"Bearer {TOKEN}").status == 200
        (tmp_path / "new").write_text(TOKEN[::-1])
        (tmp_path / "new").rename(token)
        wait_until(lambda: ask(url, Authorization=f"Bearer {TOKEN[::-1]}").status == 200)
        assert ask(url, Authorization=f"Bearer {TOKEN}").status == 401


INVALID_CHANGES = {
    "": "it is empty",
    "basic_auth_users: {alice: ''}\n": "'alice' has no bcrypt hash",
    "basic_auth_users: {alice: 2001-99-99}\n": "it cannot be read as YAML",
    "tls_server_config: {cert_file: a, key_file: b}\n": "a: no such file",
}


def test_an_invalid_change_is_reported_and_the_previous_credentials_remain(tmp_path: Path) -> None:
    config = write(tmp_path, USERS)
    alice, bob = (basic(name, PASSWORD) for name in ("alice", "bob"))
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (process, url):
        wait_until(lambda: _web_config(url, alice)["up"])
        for text, words in INVALID_CHANGES.items():
            write(tmp_path, text)
            wait_until(lambda: words in str(_web_config(url, alice)["error"]))  # noqa: B023 - now
            assert not _web_config(url, alice)["up"]
            assert ask(url).status == 401
        metrics = ask(url, "/metrics", Authorization=alice).body.decode()
        assert 'warmwatch_source_up{source="web_config"} 0.0' in metrics
        write(tmp_path, USERS.replace("alice", "bob"))
        wait_until(lambda: ask(url, Authorization=bob).status == 200)
        assert ask(url, Authorization=alice).status == 401
        wait_until(lambda: _web_config(url, bob)["up"])
        process.terminate()
        *reported, last = process.communicate(timeout=240)[1].splitlines()
    for line, words in zip(reported, INVALID_CHANGES.values(), strict=True):
        assert words in line
        assert line.endswith("what held before this change still holds")
    assert last.endswith("read again, and in use")


def test_a_change_never_disables_authentication(tmp_path: Path, authority: Authority) -> None:
    """Not even if every file is right: that needs a restart."""
    more = "  client_auth_type: NoClientCert\n"
    config = write(tmp_path, tls(authority, more) + USERS)
    alice = basic("alice", PASSWORD)
    trusted = authority.trusted()
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (process, url):

        def errors() -> str:
            answer = json.loads(ask(url, tls=trusted, Authorization=alice).body)
            (found,) = (one for one in answer["sources"] if one["source"] == "web_config")
            return str(found["error"])

        write(tmp_path, tls(authority, more))
        wait_until(lambda: "it takes authentication away, which needs a restart" in errors())
        write(tmp_path, USERS)
        wait_until(lambda: "it puts TLS on or off, which needs a restart" in errors())
        assert ask(url, tls=trusted).status == 401
        process.terminate()


def test_a_certificate_is_replaced_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    """Key and certificate are two files: between the two changes the old pair is served."""
    config = write(tmp_path, "tls_server_config: {cert_file: cert, key_file: key}\n")

    def put(name: str, *kinds: str) -> None:
        for kind, file in zip(("cert", "key"), authority.sign(name), strict=True):
            if kind in kinds:
                (tmp_path / kind).write_bytes(file.read_bytes())

    put("daemon", "cert", "key")
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (_, url):
        before = _certificate(url)
        put("next", "cert")

        def state() -> bool:
            answer = json.loads(ask(url, tls=authority.trusted()).body)
            return all(one["up"] for one in answer["sources"] if one["source"] == "web_config")

        wait_until(lambda: not state())
        assert _certificate(url) == before
        put("last", "cert", "key")
        wait_until(lambda: _certificate(url) != before)
        wait_until(state)


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


def test_more_host_names_can_be_allowed_and_credentials_allow_every_name(tmp_path: Path) -> None:
    with daemon_process("--allowed-host", "a.example", "--dir", str(tmp_path)) as (_, url):
        assert [ask(url, Host=one).status for one in ("A.example:80", "b.example")] == [200, 421]
    names = {"WARMWATCH_ALLOWED_HOSTS": "a.example, b.example"}
    with daemon_process("--dir", str(tmp_path), **names) as (_, url):
        assert [ask(url, Host=one).status for one in ("a.example", "b.example")] == [200, 200]
    config = write(tmp_path, USERS)
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (_, url):
        alice = basic("alice", PASSWORD)
        assert ask(url, Host="any.example", Authorization=alice).status == 200


def test_all_endpoints_are_read_only_and_head_answers_like_get(tmp_path: Path) -> None:
    paths = ("/status", "/metrics", "/", "/docs", "/openapi.json", "/-/healthy", "/status?run=x")
    with daemon_process("--dir", str(tmp_path)) as (_, url):
        for path in paths:
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
                reply = ask(url, path, method=method)
                assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD"), method
            head, get = ask(url, path, method="HEAD"), ask(url, path)
            assert (head.status, head.body) == (get.status, b"")
            assert head.headers["content-type"] == get.headers["content-type"]
            assert int(head.headers["content-length"]) > 0


Checked = Callable[[bytes, bytes], bool]


def test_a_password_is_checked_once_even_if_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """bcrypt takes its time on purpose; a scrape shows the same password every few seconds."""
    import asyncio

    import bcrypt

    from warmwatch_monitor.server.credentials import BusyError, Credentials, Passwords

    tried: list[bytes] = []
    right: Checked = bcrypt.checkpw

    def counting(password: bytes, hash: bytes) -> bool:
        tried.append(password)
        return right(password, hash)

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    credentials = Credentials({"alice": HASH}, (), Passwords())

    async def scenario() -> None:
        alice, wrong = (basic("alice", one).encode() for one in (PASSWORD, "x"))
        many = await asyncio.gather(*(credentials.identify(alice) for _ in range(50)))
        assert all(many)
        assert not await credentials.identify(wrong)
        assert not await credentials.identify(wrong)
        assert await credentials.identify(alice)
        assert tried == [PASSWORD.encode(), b"x"]
        guesses = [basic("alice", str(one)).encode() for one in range(50)]
        results = await asyncio.gather(*map(credentials.identify, guesses), return_exceptions=True)
        assert {type(one) for one in results} == {type(None), BusyError}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("127.0.0.1", True),
        ("fe80::1%eth0", True),
        ("127.0.0.1%.evil.example", False),
        ("127.0.0.1%eth0", False),
        ("evil.example%", False),
    ],
)
def test_only_an_ipv6_address_has_a_zone(host: str, *, right: bool) -> None:
    """Else a page's own name could pass for an address."""
    assert is_address(host) is right
    assert is_allowed(f"[{host}]" if ":" in host else host, allowed_names()) is right


@pytest.mark.parametrize("change", ["required", "another authority"])
def test_an_old_connection_cannot_bypass_a_newly_required_certificate(
    tmp_path: Path, authority: Authority, change: str
) -> None:
    """It is refused, or was closed; in no case answered."""
    (tmp_path / "ca.pem").write_bytes(authority.file.read_bytes())
    requested = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n"
    digest = f"bearer_token_sha256: [{sha256(TOKEN.encode()).hexdigest()}]\n"
    at_first = change == "another authority"
    config = write(tmp_path, tls(authority, requested) if at_first else tls(authority) + digest)
    shown = authority.trusted()
    if at_first:
        shown.load_cert_chain(*authority.sign("client"))
    with daemon_process("--web-config", config, "--dir", str(tmp_path)) as (_, url):
        old = http.client.HTTPSConnection(url.removeprefix("https://"), timeout=60, context=shown)
        assert _status_on(old) == (200 if at_first else 401)
        if at_first:
            (tmp_path / "other").mkdir()
            Authority(tmp_path / "other").file.rename(tmp_path / "ca.pem")
        else:
            write(tmp_path, tls(authority, requested))
        wait_until(lambda: not _gets_in(url, shown))
        try:
            assert _status_on(old) == 421
        except (http.client.HTTPException, ConnectionError, ssl.SSLError):
            pass  # it was closed meanwhile
        finally:
            old.close()


def _status_on(connection: http.client.HTTPSConnection) -> int:
    connection.auto_open = not connection.sock  # never another one
    connection.request("GET", "/status")
    reply = connection.getresponse()
    reply.read()
    return reply.status


def _gets_in(url: str, context: ssl.SSLContext) -> bool:
    try:
        return bool(ask(url, tls=context).status)
    except (ssl.SSLError, ConnectionError):
        return False


def test_an_empty_token_belongs_to_no_user() -> None:
    """Where a digest of it came in by another way."""
    import asyncio

    from warmwatch_monitor.server.credentials import Client, Credentials, Passwords

    nothing = Credentials({}, [(sha256().hexdigest(), Client(name="nobody"))], Passwords())
    for header in (b"Bearer ", b"Bearer", b"Bearer   "):
        assert not asyncio.run(nothing.identify(header))


def test_the_access_log_names_the_client(tmp_path: Path, authority: Authority) -> None:
    """By its certificate, its token or its password; of a request that is refused, the address."""
    more = f"  client_ca_file: {authority.file}\n  client_auth_type: RequireAndVerifyClientCert\n"
    client = authority.trusted()
    client.load_cert_chain(*authority.sign("prometheus"))
    named = f"bearer_tokens: [{{name: grafana, sha256: {_digest('a token')}}}]\n"

    def logged(config: str, *headers: dict[str, str]) -> list[str]:
        own = ("--web-config", write(tmp_path, config), "--dir", str(tmp_path))
        with daemon_process(*own, WARMWATCH_LOG_FORMAT="logfmt") as (process, url):
            assert process.stderr is not None
            for one in headers:
                ask(url, tls=client, **one)
            lines = iter(process.stderr.readline, "")
            found = (line.partition(" client=")[2].rstrip() for line in lines if _ACCESS in line)
            return [next(found) for _ in headers]

    by_certificate = logged(tls(authority, more), {})
    assert by_certificate == ["127.0.0.1 user=prometheus path=/status"]
    token, wrong = ({"Authorization": f"Bearer {one}"} for one in ("a token", "another"))
    password = {"Authorization": basic("alice", PASSWORD)}
    assert logged(USERS + named, token, password, wrong) == [
        "127.0.0.1 user=grafana path=/status",
        "127.0.0.1 user=alice path=/status",
        "127.0.0.1 path=/status refused=401",
    ]


@pytest.fixture(scope="module")
def two_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon with the records of two users, each with a GPU, and a token for each and for all.

    A second run of the first user claims the other's GPU, on which it has no process.
    """
    place = tmp_path_factory.mktemp("two_users")
    (place / "nvml").mkdir()
    standin = Standin(place / "nvml")
    records = place / "records"
    uuids = [board(number)["uuid"] for number in range(2)]
    runs = [*zip(("gpt2", "gpt2"), OWNERS, uuids, strict=True), ("forged", OWNERS[0], uuids[1])]
    with ExitStack() as stack:
        pids = []
        for run, uid, uuid in runs:
            folder = write_record(records, warm(run, gpus=(uuid,)), name=f"{run}{uid}")
            for path in (folder, *folder.iterdir()):
                os.chown(path, uid, uid)
            pids.append(stack.enter_context(held(folder)).pid)
        standin.say(*(board(number, processes=str(pids[number])) for number in range(2)))
        write_record(records, warm(run="secret name"), name="refused").chmod(0o777)
        tokens = [f"{{name: t{uid}, sha256: {_digest(str(uid))}, user: {uid}}}" for uid in OWNERS]
        text = f"bearer_tokens: [{', '.join(tokens)}, {{sha256: {_digest('all')}}}]\n"
        own = ("--web-config", write(place, text), "--dir", str(records))
        _, url = stack.enter_context(daemon_process(*own, **standin.environment))
        wait_until(
            lambda: (len(_answer(url, "all")["gpus"]), len(_answer(url, "all")["runs"])) == (2, 3)
        )
        yield url


OWNERS = (10001, 10002)
_ACCESS = "event=access"


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _answer(url: str, token: str, path: str = "/status") -> Any:
    return json.loads(ask(url, path, Authorization=f"Bearer {token}").body)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_a_user_token_reads_only_that_user_s_runs_and_gpus(two_users: str) -> None:
    everything = _answer(two_users, "all")
    assert {run["owner_uid"] for run in everything["runs"]} == {*OWNERS}
    (path,) = (refusal["path"] for refusal in everything["refusals"])
    assert path.endswith("refused")
    for number, uid in enumerate(OWNERS):
        answer = _answer(two_users, str(uid))
        assert {run["owner_uid"] for run in answer["runs"]} == {uid}
        assert [gpu["uuid"] for gpu in answer["gpus"]] == [board(number)["uuid"]]
        assert (answer["refusals"], answer["more_refusals"]) == ([], 1)
        series = ask(two_users, "/metrics", Authorization=f"Bearer {uid}").body.decode()
        assert f'run="gpt2@{uid}"' in series
        assert "warmwatch_records_refused 1" in series
        for other in {*OWNERS} - {uid}:
            assert board(OWNERS.index(other))["uuid"] not in series
            for text in (series, json.dumps(answer)):
                assert f"gpt2@{other}" not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_an_owner_sees_no_value_of_a_claimed_gpu_without_a_process_of_the_run(
    two_users: str,
) -> None:
    shown = {run["run"]: json.dumps(run) for run in _answer(two_users, str(OWNERS[0]))["runs"]}
    (forged,) = (text for name, text in shown.items() if name.startswith("forged"))
    (own,) = (text for name, text in shown.items() if name.startswith("gpt2"))
    assert "686 W" in own
    assert "686 W" not in forged


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_a_user_token_neither_finds_nor_waits_for_another_user_s_run(two_users: str) -> None:
    one, other = OWNERS
    requested = {"Authorization": f"Bearer {one}"}
    assert ask(two_users, f"/status?run=gpt2@{one}", **requested).status == 200
    # both ways to an answer: the fast path, and the routes, which take what is odd
    for path in (f"/status?run=gpt2@{other}", f"/status?run=gpt2@{other}&more=1"):
        assert ask(two_users, path, **requested).status == 404
    for path in ("/status?wait=warm&timeout=60", "/status?wait=warm&timeout=60&more=1"):
        waited = _answer(two_users, str(one), path)
        assert waited["reached"] is True
        assert {run["owner_uid"] for run in waited["runs"]} == {one}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_a_user_token_reads_no_other_endpoint(two_users: str) -> None:
    for path in ("/events", "/history", "/", "/docs", "/openapi.json", "/page/page.js"):
        refused = ask(two_users, path, Authorization=f"Bearer {OWNERS[0]}")
        assert (refused.status, b"/status and /metrics" in refused.body) == (403, True)
        if path != "/events":  # which does not end
            assert ask(two_users, path, Authorization="Bearer all").status in {200, 404}
    assert ask(two_users, "/-/ready").status == 200


def test_pending_password_guesses_do_not_delay_shutdown(tmp_path: Path) -> None:
    """One guess is checked while the others wait.

    At shutdown all get a 503, and the exit waits only for that check.
    """
    dear = HASH.replace("$04$", "$15$")
    config = write(tmp_path, f"basic_auth_users: {{alice: {dear}}}\n")
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, time, bcrypt\n"
        "def slow(*_):\n"
        f"    while not pathlib.Path({str(tmp_path / 'enough')!r}).exists():\n"
        "        time.sleep(0.01)\n"
        f"    pathlib.Path({str(tmp_path / 'tried')!r}).open('a').write('one ')\n"
        "bcrypt.checkpw = slow\n"
    )
    with daemon_process(
        *("--web-config", config, "--dir", str(tmp_path)), PYTHONPATH=str(tmp_path)
    ) as (process, url):
        where = url.removeprefix("http://")
        guesses = [http.client.HTTPConnection(where, timeout=240) for _ in range(17)]
        for number, one in enumerate(guesses):
            one.request("GET", "/status", headers={"Authorization": basic("alice", str(number))})
        answered, _, _ = select.select([one.sock for one in guesses], [], [], 240)
        assert answered  # a refusal of one too many, so the others are waiting
        process.terminate()
        assert {one.getresponse().status for one in guesses} == {503}
        (tmp_path / "enough").touch()
        assert process.communicate(timeout=240)[1] == ""
    assert process.returncode == 0
    assert (tmp_path / "tried").read_text() == "one "
