"""A directory that another one replaces while trainings have their records in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.daemon import daemon_process
from support.records import held, holder, wait_until, warm, write_record
from support.web import ask
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.sources.records.source import RecordsSource

REPLACED = "is another directory than before (a file system was mounted or unmounted there, or it"
UNREAD = 6


def read(source: RecordsSource) -> tuple[int, str]:
    found = source.read()
    return len(found.records), found.problem or ""


def test_living_records_that_vanish_with_their_directory_are_a_problem(tmp_path: Path) -> None:
    """Until they are back."""
    records, away = tmp_path / "records", tmp_path / "away"
    folder = write_record(records, warm("first"))
    source = RecordsSource([str(records)], retention=900)
    with held(folder):
        assert read(source) == (1, "")
        records.rename(away)
        records.mkdir()
        count, problem = read(source)
        assert count == 0
        assert f"{records} {REPLACED}" in problem
        assert problem.endswith("and a living process has its record in the old one")
        with held(write_record(records, warm("second"), name="second")):
            count, problem = read(source)
            assert (count, REPLACED in problem) == (1, True)
            records.rename(tmp_path / "new")
            away.rename(records)
            count, problem = read(source)
            assert (count, "a living process has its record" in problem) == (1, True)
        wait_until(lambda: read(source) == (1, ""))


def test_a_removed_record_or_one_that_ended_is_no_problem(tmp_path: Path) -> None:
    records = tmp_path / "records"
    ended = write_record(records, warm("ended"))
    source = RecordsSource([str(records)], retention=900)
    with held(ended):
        assert read(source) == (1, "")
        ended.rename(tmp_path / "removed")
        wait_until(lambda: read(source) == (0, ""))
    write_record(records, warm("over"))
    wait_until(lambda: read(source)[0] == 1)
    records.rename(tmp_path / "away")
    records.mkdir()
    assert read(source) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("how", ["mounted over", "unmounted lazily"])
def test_a_mount_over_the_directory_is_a_source_that_is_down(tmp_path: Path, how: str) -> None:
    """The daemon's health, its metric, and the exit code of a command."""
    records = tmp_path / "records"
    records.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(records))
    unmount = ("umount", "--lazy", str(records))

    def ran(*command: str) -> bool:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    if how == "unmounted lazily" and not ran(*mount):
        pytest.skip("nothing may be mounted here")
    try:
        folder = write_record(records, warm("gpt2"))
        with held(folder), daemon_process("--dir", str(records)) as (_, url):
            wait_until(lambda: json.loads(ask(url).body)["runs"])
            assert holder(folder)
            if not ran(*(mount if how == "mounted over" else unmount)):
                pytest.skip("nothing may be mounted here")

            def down() -> bool:
                return (
                    'warmwatch_source_up{source="records"} 0' in ask(url, "/metrics").body.decode()
                )

            wait_until(down)
            shown = CliRunner().invoke(cli, ["status", "--address", url.removeprefix("http://")])
            assert shown.exit_code == UNREAD
            assert f"{records} {REPLACED}" in " ".join(shown.output.split())
            undo = unmount if how == "mounted over" else None
            if undo:
                assert ran(*undo)
                wait_until(lambda: not down())
    finally:
        ran(*unmount)
