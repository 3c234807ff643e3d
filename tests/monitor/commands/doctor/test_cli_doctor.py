"""``warmwatch doctor``: finds common problems and their remedies."""

from __future__ import annotations

import json
import re
import socket
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from support.daemon import daemon
from support.records import held, live_slot, since_boot, wait_until, warm, write_record
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, Slot, StepCounts
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.doctor import checks
from warmwatch_monitor.commands.doctor.command import reduced
from warmwatch_monitor.commands.doctor.host_checks import CompileHost, compile_host
from warmwatch_monitor.model.snapshot import RecordRoom
from warmwatch_monitor.output.summary import WHEN_SEEN
from warmwatch_monitor.sources import processes


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of our own, a torch that is new enough, and no daemon at the default address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = f"127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("WARMWATCH_ADDRESS", free)
    # as one to compile on, any machine is a good one
    monkeypatch.setattr(
        "warmwatch_monitor.commands.doctor.command.compile_host",
        lambda _environ: CompileHost(processors=1),
    )
    monkeypatch.setattr(checks, "daemons", list)  # not those of other tests
    with_torch(monkeypatch, "2.13.0+cpu")


def with_torch(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def answer(name: str) -> str:
        assert name == "torch"
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", answer)


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *arguments])


def troubles(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if line.startswith("DO")]


def test_doctor_exits_0_without_a_problem(tmp_path: Path) -> None:
    with held(write_record(tmp_path, warm())):
        result = doctor()
    assert (result.exit_code, troubles(result)) == (0, [])
    assert f"trainings of this user write their records to {tmp_path}" in result.stdout
    assert "1 record can be read, 1 of living processes" in result.stdout
    assert "torch 2.13.0+cpu is installed here" in result.stdout
    assert "start one with: warmwatch serve" in result.stdout


def one_trouble(result: Result) -> str:
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("1 problem found")
    (line,) = troubles(result)
    return line


def test_a_torch_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(monkeypatch, "2.5.1")
    result = doctor()
    assert "torch 2.5.1 is installed here, which is too old" in one_trouble(result)
    assert "pip install -U torch" in result.stdout


def test_a_directory_that_cannot_be_created_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path / "file" / "below"))
    result = doctor()
    assert result.exit_code == 1
    assert any(
        "trainings of this user cannot write records anywhere" in t for t in troubles(result)
    )
    assert f"{tmp_path}/file/below: it cannot be accessed: Not a directory" in result.stdout


def test_an_unknown_variable_is_a_problem_and_the_nearest_is_suggested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARMWATCH_RUM", "x")
    assert "did you mean WARMWATCH_RUN?" in one_trouble(doctor())


def test_doctor_prints_the_variables_that_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMWATCH_INTERVAL", "0.5")
    monkeypatch.setenv("WARMWATCH_OBSERVE", "")  # empty is unset
    (line,) = (one for one in doctor().stdout.splitlines() if one.startswith("ok    set: "))
    assert f"WARMWATCH_DIR={tmp_path}" in line
    assert "WARMWATCH_INTERVAL=0.5" in line
    assert "WARMWATCH_OBSERVE" not in line


def test_a_file_that_is_not_a_record_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / record.SLOT).write_bytes(b"x" * record.SIZE)
    line = one_trouble(doctor())
    assert f"{tmp_path}/bad: not a warmwatch record" in line


def test_a_dead_record_of_another_release_is_not_a_problem_and_expires(
    tmp_path: Path,
) -> None:
    folder = write_record(tmp_path, warm())
    slot = folder / record.SLOT
    slot.write_bytes(slot.read_bytes()[:8] + b"\x02" + slot.read_bytes()[9:])
    with held(folder):
        assert "record of version 2" in one_trouble(doctor())
    result = doctor()
    assert (result.exit_code, troubles(result)) == (0, [])
    assert f"left by a process that is gone: {folder}: record of version 2" in result.stdout
    assert "a user's 200 newest records are kept" in result.stdout


def test_errors_of_the_agent_are_a_problem_and_the_last_one_is_shown(tmp_path: Path) -> None:
    slot = warm()
    slot = replace(slot, compile=replace(slot.compile, agent_errors=2))
    events = [{"t": 1, "event": "error", "where": "events", "message": "KeyError: 'x'"}]
    with held(write_record(tmp_path, slot, events=events)):
        line = one_trouble(doctor())
    assert "run gpt2, rank 0: the agent caught 2 errors" in line
    assert "events: KeyError: 'x'" in line


def test_without_a_record_doctor_explains_when_one_is_created(tmp_path: Path) -> None:
    assert "until then nothing can show it" in doctor().stdout
    with held(write_record(tmp_path, warm())):
        assert "until then nothing can show it" not in doctor().stdout


def test_a_training_that_imports_warmwatch_alone_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARMWATCH_OBSERVE", "on")
    monkeypatch.setattr(
        checks, "without_record", lambda: [(pid, "python train.py") for pid in range(1, 8)]
    )
    monkeypatch.setattr(checks, "attaches_nothing", lambda pid: pid == 7)
    result = doctor()
    assert '(pid 7) has loaded PyTorch and has no record: its script has "import warmwatch"' in (
        one_trouble(result)
    )
    assert 'add "import warmwatch.auto" to the script' in " ".join(result.stdout.split())
    notes = [line for line in result.stdout.splitlines() if "without a record so far" in line]
    assert len(notes) == 1, "one text for all others"
    assert "(pid 1), " in notes[0]
    assert "(pid 6)" in notes[0]
    assert WHEN_SEEN in " ".join(result.stdout.split())
    monkeypatch.setattr(checks, "attaches_nothing", lambda _: False)
    assert doctor().exit_code == 0, "its record may come"
    assert " notes" in doctor().stdout.splitlines()[-1], "one of which may be a training"


def compiled(
    seconds_ago: float, *, steps: int = 0, active: bool = False, quiet_ns: int = 0
) -> Slot:
    now, ended_ns = time.monotonic_ns(), since_boot(seconds_ago)
    counts = CompileCounts(
        begun=1,
        ended=1,
        last_end_ns=ended_ns,
        active_since_ns=now - 10**9 if active else 0,
        quiet_ns=quiet_ns,
    )
    return live_slot(
        StepCounts(steps=steps, last_step_ns=now if steps else 0), counts, age=seconds_ago + 1
    )


def test_a_rank_that_compiled_without_steps_gets_advice(tmp_path: Path) -> None:
    with held(write_record(tmp_path, compiled(100))):
        result = doctor()
    line = one_trouble(result)
    assert re.search(r"run gpt2, rank 0: it compiled, and in the 1\d\d s since then it has", line)
    assert "call warmwatch.step()" in result.stdout


def test_missing_hook_points_are_noted_and_an_old_torch_in_a_training_is_a_problem(
    tmp_path: Path,
) -> None:
    with held(write_record(tmp_path, warm(torch="2.4.1", missing=("callbacks",)))):
        result = doctor()
    assert "run gpt2, rank 0 uses torch 2.4.1, which is too old" in one_trouble(result)
    assert "its torch lacks callbacks" in result.stdout


def test_a_daemon_that_watches_the_same_directory_is_fine_until_the_directory_disappears(
    tmp_path: Path,
) -> None:
    with daemon(tmp_path) as url:
        address = url.removeprefix("http://")
        result = doctor("--address", address)
        assert result.exit_code == 0
        assert f"reads the records in {tmp_path}" in result.stdout
        away = tmp_path.rename(f"{tmp_path}-away")
        wait_until(lambda: "systemd-tmpfiles --create" in doctor("--address", address).stdout)
        away.rename(tmp_path)


def test_a_daemon_that_watches_another_directory_is_a_problem(tmp_path: Path) -> None:
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    other.mkdir()
    with daemon(other) as url:
        result = doctor("--address", url.removeprefix("http://"))
    assert (
        f"reads the records in {other}, but trainings of this user write theirs to {tmp_path}"
        in one_trouble(result)
    )
    assert "the same WARMWATCH_DIR" in result.stdout


def test_obstacles_to_compiling_on_this_host_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path.with_name(f"{tmp_path.name}-file")
    file.touch()
    monkeypatch.setattr("warmwatch_monitor.commands.doctor.command.compile_host", compile_host)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(file))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "many")
    found = troubles(doctor())
    assert "TORCHINDUCTOR_COMPILE_THREADS=many is no number of threads" in found[0]
    assert f"{file} cannot be used: {file} is no directory" in found[1]


def test_json_has_the_same_findings_and_exit_code() -> None:
    words, reported = (
        CliRunner().invoke(cli, ["doctor"]),
        CliRunner().invoke(cli, ["doctor", "--json"]),
    )
    answer = json.loads(reported.stdout)
    assert reported.exit_code == words.exit_code == (1 if answer["to_do"] else 0)
    assert {one["mark"] for one in answer["findings"]} <= {"fine", "note", "trouble"}
    assert answer["to_do"] == sum(one["mark"] == "trouble" for one in answer["findings"])
    assert all(one["what"].splitlines()[0] in words.stdout for one in answer["findings"][:3])


def test_a_shared_record_directory_gets_advice_unless_it_is_its_own_file_system(
    tmp_path: Path,
) -> None:
    expected = f"any user can fill the file system of {tmp_path}, which others need too"
    tmp_path.chmod(0o1777)
    assert expected in doctor().stdout
    tmp_path.chmod(0o755)
    assert expected not in doctor().stdout
    assert not list(checks._shared_file_systems(["/dev/shm", str(tmp_path / "none")]))


def test_free_space_inodes_stray_files_and_a_second_daemon_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core.123").touch()
    assert "core.123: a file, not a record; it can be removed" in doctor().stdout
    assert re.search(rf"ok    .*B and [\d,]+ inodes free in {tmp_path}\n", doctor().stdout)
    for left in ((15 << 20, None), (None, 199)):
        room = RecordRoom(directory="/d", identity="", free_bytes=left[0], free_inodes=left[1])
        assert checks._room(room).mark is checks.Mark.TROUBLE
    commands = {7: ("/opt/bin/python", "/opt/bin/warmwatch", "serve"), 8: ("warmwatch", "status")}
    commands[6] = ("sudo", "warmwatch", "serve")
    monkeypatch.setattr(processes.proc, "pids", lambda: [6, 7, 8, 9])
    monkeypatch.setattr(processes.proc, "ancestors", lambda pid: [6, 1] if pid == 7 else [1])
    commands[9] = ("python", "-m", "warmwatch_monitor", "serve", "--dir", "/d")
    monkeypatch.setattr(processes.proc, "command", commands.__getitem__)
    monkeypatch.setattr(processes.os, "stat", lambda _: SimpleNamespace(st_uid=0))
    monkeypatch.setattr(checks, "daemons", processes.daemons)
    assert [one.what for one in checks._daemons()] == [
        "2 daemons run on this host: pid 7 (user root), pid 9 (user root)"
    ]
    del commands[9]
    monkeypatch.setattr(processes.proc, "pids", lambda: [7, 8])
    assert not [*checks._daemons()]


class TestReportForAnIssue:
    """``doctor --report``: shown first, written only with consent, without the user's names."""

    SECRETS = ("secret-run", "secret_function", "secret_file.py")

    @pytest.fixture(autouse=True)
    def no_hooks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        finding = checks.Finding(mark=checks.Mark.TROUBLE, what="hook events: absent: no listener")
        monkeypatch.setattr(
            "warmwatch_monitor.commands.doctor.command.hooks", lambda _environ, **_: [finding]
        )
        monkeypatch.setattr(metadata, "version", lambda _name: "1.2.3")

    def report(
        self, tmp_path: Path, path: str, answer: str | None, *, run: str = "secret-run"
    ) -> Result:
        with held(write_record(tmp_path, warm(run))):
            options = ["--dir", str(tmp_path), "--report", path]
            return CliRunner().invoke(cli, ["doctor", *options], input=answer)

    def test_the_report_is_shown_and_written_with_consent(self, tmp_path: Path) -> None:
        target = tmp_path / "report.md"
        result = self.report(tmp_path, str(target), "y\n")
        assert result.exit_code == 0, result.output
        text = target.read_text()
        assert text in result.output
        assert "- torch 1.2.3" in text
        assert "- trouble: hook events: absent: no listener" in text
        runs = json.loads(text.partition("```json\n")[2].partition("```")[0])["runs"]
        assert runs[0]["ranks"][0]["state"] == "warm"
        assert not [word for word in self.SECRETS if word in text]

    @pytest.mark.parametrize(("path", "answer"), [("report.md", "n\n"), ("-", None)])
    def test_no_report_is_written_without_consent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, answer: str | None
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        result = self.report(tmp_path, path, answer)
        assert "# Warmwatch: report for an issue" in result.output
        assert not list(elsewhere.iterdir())

    @pytest.mark.parametrize("run", ["e", "torch 1", "ranks"])
    def test_words_that_contain_a_redacted_name_are_unchanged(
        self, tmp_path: Path, run: str
    ) -> None:
        text = self.report(tmp_path, "-", None, run=run).output
        (judged,) = json.loads(text.partition("```json\n")[2].partition("```")[0])["runs"]
        assert judged["ranks"][0]["state"] == "warm"
        assert "- trouble: hook events: absent: no listener" in text

    def test_the_report_contains_no_name_of_the_user(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A daemon elsewhere does not answer, so ``/status`` names no run."""
        monkeypatch.setenv("WARMWATCH_ADDRESS", "secret-host.invalid:1")
        monkeypatch.setenv("WARMWATCH_DIR", str(folder := tmp_path / "secret-project"))
        with held(write_record(folder, warm("secret-run"))):
            text = CliRunner().invoke(cli, ["doctor", "--report", "-"]).output
        report = text[text.index("# Warmwatch") :]
        assert "run NAME, rank 0 uses torch" in report
        assert "no daemon answers at HOST:1" in report
        assert f"write their records to /{tmp_path.parts[1]}/…" in report
        assert "secret" not in report

    def test_the_report_contains_no_folder_below_the_first_even_if_a_name_has_a_space(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        records, cache = tmp_path / "the secret one" / "more", tmp_path / "my secret cache"
        (records / "the secret record").mkdir(parents=True)
        cache.write_text("no directory")
        monkeypatch.setenv("WARMWATCH_DIR", str(records))
        monkeypatch.setattr("warmwatch_monitor.commands.doctor.command.compile_host", compile_host)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache / "inductor"))
        text = CliRunner().invoke(cli, ["doctor", "--report", "-"]).output
        report = text[text.index("# Warmwatch") :]
        assert f"write their records to /{tmp_path.parts[1]}/…\n" in report
        assert f"Inductor's cache /{tmp_path.parts[1]}/… cannot be used" in report
        assert "secret" not in report

    def test_a_report_that_cannot_be_written_is_one_sentence(self, tmp_path: Path) -> None:
        result = self.report(tmp_path, str(tmp_path / "none" / "report.md"), "y\n")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "--report: the directory of" in result.stderr


def test_a_report_contains_only_counts_and_words_of_closed_lists() -> None:
    answer = {
        "state": "warm",
        "run": "secret-run",
        "functions": [{"name": "secret_function", "compilations": 3, "breaks": None}],
        "varying": [{"values": [987654321], "smallest": 987654321, "largest": 5, "count": 1}],
        "evidence": ["secret"],
        "missing": ["autotune"],
    }
    assert reduced(answer) == {
        "state": "warm",
        "functions": [{"compilations": 3}],
        "varying": [{"count": 1}],
        "missing": ["autotune"],
    }


def test_advice_is_wrapped_on_a_terminal_and_has_one_line_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    piped = doctor().stdout.splitlines()
    monkeypatch.setattr("warmwatch_monitor.commands.doctor.command.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = doctor().stdout.splitlines()
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)  # a path is not wrapped
    assert max(map(len, piped)) > 80
    assert _words_of(lines) == _words_of(piped)
    assert all(line.startswith(("ok    ", "note  ", "DO    ", " " * 7)) for line in lines[:-1])


def _words_of(lines: list[str]) -> list[str]:
    """Without digits: what is free changes between two calls."""
    return re.sub(r"\d", "", " ".join(lines)).split()
