"""The service, as systemd's own programs read it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from support.deployment import DOCKER
from warmwatch_monitor.base.settings import load

SYSTEMD = DOCKER / "systemd"
UNIT = (SYSTEMD / "warmwatch.service").read_text()


def call(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program in place of the one that is not installed here."""
    path = tmp_path / "warmwatch.service"
    path.write_text(UNIT.replace("/opt/warmwatch/bin/warmwatch", "/bin/true"))
    return path


def test_systemd_accepts_the_unit(unit: Path) -> None:
    assert call("systemd-analyze", "verify", unit) == ""


def test_systemd_rates_the_exposure_of_the_unit_as_low(unit: Path) -> None:
    shown = call("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for warmwatch.service: ([\d.]+)", shown)
    assert found
    assert float(found[1]) <= 2.5


def test_the_unit_hides_no_gpu_and_no_process_from_the_monitor() -> None:
    settings = {line.partition("=")[0] for line in UNIT.splitlines() if not line.startswith("#")}
    hiding = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectProc"}
    assert not settings & {*hiding, "ProcSubset", "PrivateUsers", "PrivatePIDs"}


def test_the_service_has_a_watchdog_a_restart_and_a_reload() -> None:
    lines = UNIT.splitlines()
    for setting in (
        "Type=notify",
        "Restart=always",
        "RestartPreventExitStatus=2",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ):
        assert setting in lines
    assert any(line.startswith("WatchdogSec=") for line in lines)


def test_the_record_directory_is_not_the_services_own() -> None:
    lines = UNIT.splitlines()
    assert "Environment=WARMWATCH_DIR=/run/warmwatch" in lines
    assert [one for one in lines if one.startswith("RuntimeDirectory=")] == [
        "RuntimeDirectory=warmwatch-monitor"
    ]


def test_commands_find_the_socket_at_their_first_path() -> None:
    (path,) = re.findall("^Environment=WARMWATCH_SOCKET=(.+)$", UNIT, re.MULTILINE)
    assert path == load({}, 0, {}).sockets[0]
    (directory,) = re.findall("^RuntimeDirectory=(.+)$", UNIT, re.MULTILINE)
    assert Path(path).parent == Path("/run", directory)


def test_the_record_directory_is_its_own_bounded_file_system() -> None:
    lines = (SYSTEMD / "run-warmwatch.mount").read_text().splitlines()
    assert "Where=/run/warmwatch" in lines
    (options,) = (line for line in lines if line.startswith("Options="))
    assert {"mode=1777", "size=512M", "nr_inodes=32k"} <= set(options.partition("=")[2].split(","))
    assert "RequiresMountsFor=/run/warmwatch" in UNIT.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to root")
def test_tmpfiles_creates_a_shared_directory_of_root(tmp_path: Path) -> None:
    """With a number for the monitor's user, who does not exist here."""
    lines = (SYSTEMD / "warmwatch.tmpfiles.conf").read_text()
    (tmp_path / "run").mkdir()
    config = tmp_path / "warmwatch.conf"
    config.write_text(lines.replace("user:warmwatch:", "user:10464:"))
    output = call("systemd-tmpfiles", f"--root={tmp_path}", "--create", config)
    made = (tmp_path / "run" / "warmwatch").stat()
    assert (made.st_uid, stat.filemode(made.st_mode)) == (0, "drwxrwxrwt")
    assert "system.posix_acl_default" in os.listxattr(tmp_path / "run" / "warmwatch"), output


def test_sysusers_creates_the_user_of_the_service(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may write another root's users")
    (tmp_path / "etc").mkdir()
    shutil.copy(SYSTEMD / "warmwatch.sysusers.conf", tmp_path / "warmwatch.conf")
    call("systemd-sysusers", f"--root={tmp_path}", tmp_path / "warmwatch.conf")
    users = (tmp_path / "etc" / "passwd").read_text()
    name = re.search(r"^User=(\w+)$", UNIT, re.MULTILINE)
    assert name
    assert re.search(rf"^{name[1]}:x:\d+:\d+:.*:/usr/sbin/nologin$", users, re.MULTILINE)
