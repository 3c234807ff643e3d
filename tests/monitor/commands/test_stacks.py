"""``warmwatch stacks``: stacks from the agent's dump, from py-spy, or a remedy without both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.records import compiling, held, live_slot, update, wait_until, warm, write_record
from warmwatch.shared.record import STACKS
from warmwatch.shared.record.stack_file import STACKS_LIMIT, Frame, Stacks, ThreadStack, pack_stacks
from warmwatch_monitor.base.errors import NO_RECENT_RUN, SourceError
from warmwatch_monitor.commands import py_spy
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.stacks import by_kernel, kernel_threads
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources import proc

FRAMES = (Frame("flock", "filelock.py", 31), Frame("<module>", "train.py", 7))
SPIED = [
    {
        "pid": 7,
        "os_thread_id": 8,
        "thread_name": "a patient",
        "frames": [{"name": "f", "filename": "/home/alice/secret/x.py", "line": 3}],
    },
    {
        "pid": 7,
        "os_thread_id": 7,
        "thread_name": None,
        "frames": [{"name": "g", "filename": "y.py", "line": 4, "locals": [1]}],
    },
    {
        "pid": 7,
        "os_thread_id": 9,
        "frames": [
            {"name": "WatchThread._run", "filename": "warmwatch/process/threads.py", "line": 66}
        ],
    },
]


def stacks(*words: str) -> Result:
    return CliRunner().invoke(cli, ["stacks", *words])


@pytest.fixture
def _no_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "find", lambda: None)


def leave(folder: Path, *ages: float, frames: tuple[Frame, ...] = FRAMES) -> None:
    """Stacks of the activity that ``compiling`` began a second before."""
    since = _since(folder)
    with (folder / STACKS).open("ab") as file:
        for age in ages:
            thread = ThreadStack(frames=frames, main=True, compiles=True)
            at = since + round(age * 1e9)
            file.write(pack_stacks(Stacks(at_ns=at, since_ns=since, threads=(thread,))))


def _since(folder: Path) -> int:
    from support import slots

    return slots.read(folder).compile.active_since_ns


@pytest.mark.usefixtures("_no_py_spy")
def test_a_rank_between_two_compilations_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = write_record(tmp_path, warm()), Poller.poll_once

    def then_compiles(poller: Poller) -> Snapshot:
        snapshot = read(poller)
        update(folder, compiling())
        return snapshot

    monkeypatch.setattr(Poller, "poll_once", then_compiles)
    with held(folder):
        assert "compiling" in stacks("gpt2", "--dir", str(tmp_path)).stdout


@pytest.mark.usefixtures("_no_py_spy")
def test_the_agent_s_dump_is_shown_with_its_age(tmp_path: Path) -> None:
    folder = write_record(tmp_path, compiling())
    leave(folder, 0.2, frames=(Frame("elsewhere", "x.py", 1),))
    leave(folder, 0.4, 0.8)
    with held(folder):
        shown = stacks("gpt2", "--dir", str(tmp_path))
    assert shown.exit_code == 0
    assert "py-spy is not installed here: pip install py-spy" in shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("gpt2 rank 0 (pid ")
    assert lines[0].endswith(")")
    assert lines[1].startswith("  compiling")
    assert lines[2].startswith("  Python stacks, by its agent ")
    assert lines[2].endswith(" ago, after 800 ms of compiling; the same as after 400 ms:")
    assert lines[3:] == [
        "  thread 1 (main, compiles)",
        "    flock (filelock.py:31)",
        "    <module> (train.py:7)",
    ]


@pytest.mark.usefixtures("_no_py_spy")
def test_json_contains_the_agent_s_dump(tmp_path: Path) -> None:
    folder = write_record(tmp_path, compiling())
    leave(folder, 0.4)
    with held(folder):
        shown = stacks("gpt2", "--json", "--dir", str(tmp_path))
    assert (shown.exit_code, shown.stderr) == (0, "")
    answer = json.loads(shown.stdout)
    assert (answer["schema_version"], answer["ranks_left_out"]) == (1, 0)
    (rank,) = answer["ranks"]
    assert (rank["run"], rank["rank"], rank["state"]) == ("gpt2", 0, "compiling")
    assert rank["summary"].startswith("compiling")
    assert rank["source"] == "agent"
    assert rank["age_seconds"] > 0
    (thread,) = rank["threads"]
    assert thread["compiles"]
    assert thread["frames"][1] == {"name": "<module>", "file": "train.py", "line": 7}
    assert rank["problems"] == ["py-spy is not installed here: pip install py-spy"]


SLEEPS = """
import threading, time
for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
input()
"""


def test_the_kernel_s_thread_states_need_no_permission() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        wait_until(
            lambda: [one.state for one in kernel_threads(process.pid)] == ["sleeps", "sleeps"]
        )
        main, others = kernel_threads(process.pid)
        process.kill()
    assert (main.main, main.count, main.state) == (True, 1, "sleeps")
    assert (others.main, others.count, others.state) == (False, 3, "sleeps")
    assert kernel_threads(process.pid) == (), "it is gone"


def test_a_thread_that_waits_for_a_filesystem_is_named_with_the_kernel_s_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    for tid, stat, function in (
        (7, "7 (python (x)) D 1 7", "rpc_wait_bit_killable"),
        (8, "8 (python) R 1 7", "0"),
        (9, "9 (cuda\x1b[31m) S 1 7", "0"),
    ):
        task = tmp_path / "7" / "task" / str(tid)
        task.mkdir(parents=True)
        (task / "stat").write_text(f"{stat}{' 0' * 20}\n")
        (task / "wchan").write_text(function)
    assert list(by_kernel(kernel_threads(7))) == [
        "  Its threads, by the kernel now:",
        "    python (x) (main): waits for a device in rpc_wait_bit_killable",
        "    python: runs",
        "    cuda\\x1b[31m: sleeps",
    ]


@pytest.mark.usefixtures("_no_py_spy")
@pytest.mark.parametrize(
    "what", ["none", "another activity's", "link", "fifo", "too long", "garbage"]
)
def test_invalid_stack_files_are_not_shown(tmp_path: Path, what: str) -> None:
    folder = write_record(tmp_path, compiling())
    file = folder / STACKS
    if what == "another activity's":
        leave(folder, 1.0)
        line = json.loads(file.read_bytes())
        file.write_text(json.dumps({**line, "since": line["since"] - 1}) + "\n")
    elif what == "link":
        (tmp_path / "secret").write_text("secret\n")
        file.symlink_to(tmp_path / "secret")
    elif what == "fifo":
        os.mkfifo(file, 0o600)
    elif what == "too long":
        leave(folder, 1.0)
        os.truncate(file, STACKS_LIMIT + 1)
    elif what == "garbage":
        file.write_bytes(b"\xff\x00{\n" * 1000)
    with held(folder):
        shown = stacks("--dir", str(tmp_path))
    assert shown.exit_code == 1
    assert "flock" not in shown.output
    assert "secret" not in shown.output
    assert len(shown.stderr.splitlines()) == 2


@pytest.mark.usefixtures("_no_py_spy")
def test_stacks_that_cannot_be_shown_are_reported_in_a_sentence(tmp_path: Path) -> None:
    empty = stacks("--dir", str(tmp_path))
    assert (empty.exit_code, NO_RECENT_RUN in empty.stderr) == (5, True)
    with held(write_record(tmp_path, warm())):
        quiet = stacks("--dir", str(tmp_path))
        assert quiet.exit_code == 1
        assert "no rank compiles or hangs; --rank N shows any rank" in quiet.stderr
        other = stacks("--dir", str(tmp_path), "--rank", "7")
        assert (other.exit_code, "no living rank 7 is seen here; seen: 0" in other.stderr) == (
            1,
            True,
        )
        assert stacks("--dir", str(tmp_path), "--rank", "one").exit_code == 2
        assert stacks("bert", "--dir", str(tmp_path)).exit_code == 5
        named = stacks("--dir", str(tmp_path), "--rank", "0")
        assert "the agent writes stacks of compilations, and none is in progress" in named.stderr


@pytest.mark.usefixtures("_no_py_spy")
def test_a_rank_that_has_made_no_step_is_shown(tmp_path: Path) -> None:
    """It may wait for others in init_process_group() or in its first step."""
    with held(write_record(tmp_path, live_slot())):
        shown = stacks("gpt2", "--dir", str(tmp_path))
    assert "gpt2 rank 0" in shown.stdout
    assert "starting" in shown.stdout


def test_py_spy_is_preferred_and_its_paths_are_cut_to_base_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text(f"#!{sys.executable}\nprint({json.dumps(SPIED)!r})\n")
    fake.chmod(0o700)
    monkeypatch.setattr(py_spy, "find", lambda: str(fake))
    with held(write_record(tmp_path / "records", compiling())):
        shown = stacks("--dir", str(tmp_path / "records"))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[2:] == [
        "  Python stacks, by py-spy now:",
        "  thread 1 (main)",
        "    g (y.py:4)",
        "  thread 2",
        "    f (x.py:3)",
    ]


def test_a_py_spy_that_hangs_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\nexec sleep 600\n")
    fake.chmod(0o700)
    monkeypatch.setattr(py_spy, "find", lambda: str(fake))
    monkeypatch.setattr(py_spy, "PATIENCE", 0.2)
    with pytest.raises(SourceError, match="has not answered within"):
        py_spy.dump(os.getpid())


@pytest.mark.parametrize(
    ("owner", "uid", "scope", "words"),
    [
        (1001, 1000, 1, "the process belongs to user 1001; run it as root: sudo env"),
        (1000, 1000, 1, r"root \(kernel.yama.ptrace_scope is 1\); run it as root"),
        (0, 0, 1, "give it SYS_PTRACE"),
        (1000, 1000, None, "give it SYS_PTRACE"),
        (None, 1000, 0, "give it SYS_PTRACE"),
    ],
)
def test_a_refusal_of_the_kernel_is_reported_with_a_remedy(
    owner: int | None, uid: int, scope: int | None, words: str
) -> None:
    import re

    assert re.search(words, py_spy.denied(owner, uid, scope))


def test_a_real_py_spy_sees_a_real_process() -> None:
    if py_spy.find() is None:
        pytest.skip("py-spy is not installed")
    code = "def waits():\n    print(flush=True)\n    input()\nwaits()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            found = py_spy.dump(process.pid)
        except SourceError as error:
            if "py-spy has no permission" not in str(error):
                raise
            pytest.skip(str(error))
        finally:
            process.kill()
    assert [frame.name for frame in found[0].frames] == ["waits", "<module>"]


def test_stacks_are_in_no_answer_over_http(tmp_path: Path) -> None:
    """No module of the HTTP server, or of the sources it reads, imports the reader of stacks."""
    code = (
        "import sys, warmwatch_monitor.server.api.app, warmwatch_monitor.pipeline.poller;"
        "print(*sys.modules)"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "warmwatch_monitor.commands.stacks" not in loaded
    assert "warmwatch_monitor.commands.py_spy" not in loaded


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A py-spy on the path, and none next to this Python."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))
    program = folder / "py-spy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("which", ["file", "folder", "above"])
def test_py_spy_that_others_can_write_is_not_run(on_path: Path, which: str) -> None:
    place = {"file": on_path, "folder": on_path.parent, "above": on_path.parent.parent}[which]
    place.chmod(0o777)
    with pytest.raises(SourceError, match=rf"other users can write to {place}\); pip install"):
        py_spy.find()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_runs_no_py_spy_of_another_user(
    on_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile PATH, a link to another user's program, and a trusted one further along it."""
    os.chown(on_path, 4321, 4321)
    with pytest.raises(SourceError, match=f"{on_path} belongs to user 4321"):
        py_spy.find()
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    (mine / "py-spy").symlink_to(on_path)
    monkeypatch.setenv("PATH", f"{on_path.parent}:{mine}")
    with pytest.raises(SourceError, match="belongs to user 4321"):
        py_spy.find()
    (mine / "py-spy").unlink()
    (mine / "py-spy").write_text("#!/bin/sh\n")
    (mine / "py-spy").chmod(0o755)
    assert py_spy.find() == str(mine / "py-spy")
