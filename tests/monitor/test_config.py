"""The monitor's settings: where they come from, and which values are refused."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from warmwatch.shared import variables
from warmwatch_monitor.base import settings as config
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.base.settings import Address, load, parse_address
from warmwatch_monitor.commands.demo import environment


def test_without_settings_the_documented_defaults_apply() -> None:
    settings = load({"XDG_RUNTIME_DIR": "/run/user/7"}, 7, {})
    assert settings.directories == (
        "/run/warmwatch",
        "/run/user/7/warmwatch",
        "/dev/shm/warmwatch-7",
        "/tmp/warmwatch-7",
    )
    assert not settings.chosen
    assert str(settings.address) == variables.DEFAULTS["WARMWATCH_ADDRESS"]
    assert f"{settings.interval:g}" == variables.DEFAULTS["WARMWATCH_INTERVAL"]
    assert f"{settings.retention:g}" == variables.DEFAULTS["WARMWATCH_RETENTION"]
    assert not settings.otlp
    assert variables.DEFAULTS["WARMWATCH_OTLP"] == "off"


def test_a_user_without_a_home_has_no_history_unless_a_path_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container whose user id is not in /etc/passwd."""
    monkeypatch.setattr(os, "geteuid", lambda: 2**30)
    assert config.load_history_settings({}).directory is None
    assert config.load_history_settings({"WARMWATCH_STATE": "/srv/x"}).directory == "/srv/x"


def test_a_deleted_working_directory_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert load({"WARMWATCH_DIR": "/srv/x", "HOME": "/home/me"}, 7, {}).directories == ("/srv/x",)


def test_otlp_is_enabled_by_its_variable_and_by_its_option() -> None:
    assert load({"WARMWATCH_OTLP": "on"}, 7, {}).otlp
    assert load({"WARMWATCH_OTLP": "off"}, 7, {"otlp": "on"}).otlp
    assert not load({"WARMWATCH_OTLP": ""}, 7, {"otlp": None}).otlp


def test_an_explicit_directory_is_the_only_one_and_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load({"WARMWATCH_DIR": "/elsewhere"}, 7, {"dir": "records"})
    assert (settings.directories, settings.chosen) == ((f"{tmp_path}/records",), True)
    assert load({"WARMWATCH_DIR": "/elsewhere"}, 7, {}).directories == ("/elsewhere",)
    assert not load({"WARMWATCH_DIR": ""}, 7, {}).chosen


def test_a_directory_that_is_listed_twice_is_read_once() -> None:
    assert load({"XDG_RUNTIME_DIR": "/run", "TMPDIR": "/dev/shm"}, 7, {}).directories == (
        "/run/warmwatch",
        "/dev/shm/warmwatch-7",
    )


@pytest.mark.parametrize(
    ("text", "host", "port", "url"),
    [
        ("127.0.0.1:1", "127.0.0.1", 1, "http://127.0.0.1:1"),
        ("node-7:0", "node-7", 0, "http://node-7:0"),
        ("[::1]:65535", "::1", 65535, "http://[::1]:65535"),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int, url: str) -> None:
    address = parse_address("x", text)
    assert address == Address(host=host, port=port)
    assert address.url == url


@pytest.mark.parametrize(
    "text", ["", "10464", ":10464", "host:", "host:http", "host:65536", "[::1", "[::1:1", "::1]:1"]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        parse_address("x", text)


@pytest.mark.parametrize(("text", "fine"), [("0.05", True), ("60", True), ("0.049", False)])
def test_the_interval_has_limits(text: str, fine: bool) -> None:
    if fine:
        assert load({}, 7, {"interval": text}).interval == float(text)
        return
    with pytest.raises(UsageError, match=r"from 0\.05 to 60"):
        load({}, 7, {"interval": text})


def test_only_variables_with_our_prefix_can_be_unknown() -> None:
    known = dict.fromkeys(variables.DEFAULTS, "1")
    assert variables.unknown_variables({**known, "PATH": "/bin", "WARM": "1"}) == ()
    (name,) = variables.unknown_variables(["WARMWATCH_NAME"])
    assert name.endswith("; did you mean WARMWATCH_RUN?")
    (near_its_prefix,) = variables.unknown_variables(["WARMWATCH_WATCH"])
    assert "; after WARMWATCH_, known are RUN, DIR, " in near_its_prefix
    (complaint,) = variables.unknown_variables({**known, "WARMWATCH_ZZZZ": "1"})
    assert complaint.startswith("WARMWATCH_ZZZZ is not a setting of warmwatch; ")


@pytest.mark.parametrize(
    "name", ["monitor:10464", "http://monitor", "monitor/", "[::1]", "*.example", "a b", "me@host"]
)
def test_a_name_that_no_request_can_contain_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="give it without scheme, port and path") as raised:
        load({"WARMWATCH_ALLOWED_HOSTS": f"monitor.example, {name}"}, 7, {})
    assert str(raised.value).startswith(f"WARMWATCH_ALLOWED_HOSTS: {name!r} is not a host name")
    with pytest.raises(UsageError, match=r"^--allowed-host: "):
        load({}, 7, {"allowed_hosts": name})


def test_only_names_are_accepted() -> None:
    found = load({"WARMWATCH_ALLOWED_HOSTS": "monitor, my_host-1.example. ,"}, 7, {})
    assert found.allowed_hosts == ("monitor", "my_host-1.example.")


def test_the_demo_s_own_daemon_ignores_the_user_s_settings() -> None:
    mine = {
        f"{variables.PREFIX}{name}": "x" for name in ("TLS_CERT", "OTLP", "READERS", "TOKEN_FILE")
    }
    given = {**dict.fromkeys(variables.defaults(variables.Monitor), "x"), **mine, "CXX": "g++"}
    assert environment(given, "/records") == {
        "CXX": "g++",
        "WARMWATCH_GPU_INTERVAL": "x",
        "WARMWATCH_OBSERVE": "x",
        "WARMWATCH_STATE": "x",
        "WARMWATCH_DIR": "/records",
        "WARMWATCH_RUN": "demo",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", None), ("-0", None), ("off", None), ("no", None), ("0.5", 0.5), (" 90 ", 90.0)],
)
def test_the_limit_of_one_compilation_may_be_disabled(text: str, seconds: float | None) -> None:
    assert load({"WARMWATCH_LONG_COMPILE": text}, 7, {}).long_compile == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e400", "1h", "on", "2592001"])
def test_an_invalid_limit_is_refused_with_an_example(text: str) -> None:
    expected = "is neither off nor a number of seconds from 0 to 2,592,000"
    with pytest.raises(UsageError, match=f"WARMWATCH_LONG_COMPILE: {text!r} {expected}"):
        load({"WARMWATCH_LONG_COMPILE": text}, 7, {})


@pytest.mark.parametrize("home", ["", None])
def test_with_an_empty_home_the_history_is_in_the_user_s_home(home: str | None) -> None:
    """Not in the root's folder, which a relative ``$XDG_STATE_HOME`` does not name either."""
    environ = {"XDG_STATE_HOME": "state"} | ({} if home is None else {"HOME": home})
    place = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local" / "state" / "warmwatch"
    assert config.load_history_settings(environ).directory == str(place)
