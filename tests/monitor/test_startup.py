"""What the commands that are typed often must not load: imports are nearly all of their time."""

from __future__ import annotations

import ctypes
import importlib
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from textwrap import indent

import pytest

from support.daemon import daemon
from support.records import environment, held, warm, write_record
from warmwatch_monitor.sources import nvml

# Runs the command as the console script does, and prints on stderr what it loaded.
COMMAND = """
import os, sys
sys.argv[0] = "warmwatch"
os._exit = lambda _code: None  # it ends as other Pythons do, after it has printed
from warmwatch_monitor.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""

AGENT = {"warmwatch.lifecycle.attaching", "warmwatch._guard", "logging", "multiprocessing"}
DAEMON = {
    *("asyncio", "starlette", "uvicorn", "prometheus_client"),
    *(
        "rich",
        "textual",
        "http.client",
        "ssl",
        "email",
        "opentelemetry",
        "warmwatch_monitor.server.command",
    ),
    *("warmwatch_monitor.server.api.app", "warmwatch_monitor.metrics"),
    "warmwatch_monitor.last_hour",
}
RECORDS = {
    *("psutil", "pynvml", "subprocess", "hashlib", "mmap"),
    *("warmwatch.shared.record", "warmwatch.shared.verdict", "warmwatch_monitor.model"),
    *("warmwatch_monitor.pipeline.poller", "warmwatch_monitor.status.document"),
}
ANSWER = {
    "socket",
    "json",
    "msgspec",
    "warmwatch_monitor.base.settings",
    "warmwatch_monitor.client",
}
UNNEEDED = {"urllib.parse", "ipaddress", "base64", "encodings.idna"}
# what reading records needs neither for /proc nor for figures
ELSEWHERE = {
    *("warmwatch_monitor.client.daemon", "psutil", "socket", "subprocess", "pathlib"),
    *("statistics", "glob", "tempfile", "dataclasses", "hashlib", "ctypes"),
    *("array", "heapq"),
}
# what click loads for a completion, and for translations of its help
OF_CLICK = {"click.shell_completion", "locale"}
OF_A_RUN = {
    *("warmwatch.shared.record", "warmwatch.shared.verdict"),
    *("warmwatch_monitor.model.figures", "warmwatch_monitor.status.words.run"),
    *("warmwatch_monitor.pipeline.judging", "warmwatch_monitor.sources.records.followed_record"),
}
HISTORY = {"sqlite3", "warmwatch_monitor.history.store"}
SPARED = {"dataclasses", "pathlib", "difflib", "shutil", "tempfile"}  # msgspec loads textwrap


def test_the_command_line_looks_for_libraries_of_the_extra_alone() -> None:
    """One that is no dependency any more would refuse every command on a fresh machine."""
    extra = {
        re.split(r"[^\w-]", line, maxsplit=1)[0].replace("-", "_").lower()
        for line in requires("warmwatch") or ()
        if re.search(r"extra == [\"']monitor[\"']", line)
    }
    command_line = importlib.import_module("warmwatch_monitor.__main__")
    assert set(command_line.EXTRA) <= extra


def loaded(*words: str) -> set[str]:
    """The modules that ``warmwatch WORDS`` loads beyond those of a bare Python."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert "Traceback" not in done.stderr, done.stderr
    bare = subprocess.check_output(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], text=True, env=environment()
    )
    return set(done.stderr.splitlines()[-1].split()) - set(bare.split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_option_that_queries_nothing_loads_little_but_click(option: str) -> None:
    found = loaded(option)
    assert "click" in found
    assert found & (AGENT | DAEMON | RECORDS | ANSWER) == set()


@pytest.mark.parametrize("words", [("status",), ("wait", "--timeout", "2")])
def test_an_answer_from_a_daemon_loads_no_records_or_verdict_code(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    with daemon(tmp_path) as url:
        found = loaded(*words, "--address", url.removeprefix("http://"))
    assert f"warmwatch_monitor.commands.{words[0]}" in found
    unneeded = SPARED | UNNEEDED | OF_CLICK
    assert found & (AGENT | DAEMON | RECORDS | HISTORY | unneeded) == set()


def test_status_from_the_records_loads_no_agent_or_daemon_code(tmp_path: Path) -> None:
    found = loaded("status", "--dir", str(tmp_path))
    assert "warmwatch_monitor.pipeline.poller" in found
    assert found & (AGENT | DAEMON | HISTORY | ELSEWHERE | OF_CLICK | OF_A_RUN) == set()


def test_status_loads_the_code_of_a_run_with_the_first_record(tmp_path: Path) -> None:
    with held(write_record(tmp_path, warm())):
        found = loaded("status", "--dir", str(tmp_path))
    assert found >= OF_A_RUN
    assert found & (AGENT | DAEMON | HISTORY | ELSEWHERE | OF_CLICK) == set()


def test_status_looks_for_no_library_that_it_does_not_load(tmp_path: Path) -> None:
    code = (
        "import os, sys, importlib.util as util; real, names = util.find_spec, []\n"
        "util.find_spec = lambda name: names.append(name) or real(name)\n"
        "os._exit = lambda code: None\n"
        "from warmwatch_monitor.__main__ import main\n"
        "try: main()\nfinally: print(*names, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "status", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    looked_for = set(done.stderr.splitlines()[-1].split())
    assert {"click", "msgspec", "rich"} <= looked_for
    assert looked_for & {"psutil", "starlette", "textual", "uvicorn"} == set()


def test_status_defines_no_named_tuple_but_those_that_it_shares_with_the_agent(
    tmp_path: Path,
) -> None:
    """Each compiles a constructor; in the monitor, a Struct takes an eighth of its time."""
    named = (
        "for name, module in list(sys.modules.items()):\n"
        "    for one in vars(module).values():\n"
        "        if isinstance(one, type) and issubclass(one, tuple) and hasattr(one, '_fields'):\n"
        "            print(one.__module__, file=sys.stderr)"
    )
    code = COMMAND.replace("    print(*sys.modules, file=sys.stderr)", indent(named, "    "))
    with held(write_record(tmp_path, warm())):
        command = [sys.executable, "-c", code, "status", "--dir", str(tmp_path)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment()
        )
    found = {name for name in done.stderr.split() if name.startswith("warmwatch")}
    record = {f"warmwatch.shared.record.{name}" for name in ("facts", "recent", "workers_file")}
    assert found == {*record, "warmwatch.shared.verdict", "warmwatch.shared.breaks"}


def test_without_a_driver_its_bindings_are_not_loaded(tmp_path: Path) -> None:
    try:
        ctypes.CDLL(nvml.NVML)
    except OSError:
        assert "pynvml" not in loaded("status", "--dir", str(tmp_path))
    else:
        pytest.skip("this machine has the library")


@pytest.mark.parametrize(
    ("before", "printed"),
    [
        ("", []),
        ("atexit.register(print, 'registered')", ["registered", "freed"]),
        ("Thread(target=sleep, args=[3]).start()", ["freed"]),
        ("Thread(target=sleep, args=[1e6], daemon=True).start()", []),
    ],
)
def test_a_command_frees_its_modules_only_if_an_exit_function_or_a_thread_needs_it(
    before: str, printed: list[str]
) -> None:
    """The thread that follows the process of a living run is a daemon: Python ends it."""
    code = (
        "import atexit, sys; from threading import Thread; from time import sleep\n"
        "from warmwatch_monitor.__main__ import main\n"
        "class Freed:\n    def __del__(self): print('freed')\n"
        f"kept = Freed()\n{before}\n"
        "sys.argv = ['warmwatch', 'wait', '--until', 'nonsense']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout.split() == printed


def test_importing_the_package_loads_nothing_of_the_agent() -> None:
    """Monitors import it for the record format; trainings, before they decide whether to attach."""
    code = "import sys, warmwatch; warmwatch.step(); warmwatch.state(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    ours = {name for name in found if name.startswith("warmwatch")}
    needed = ("lifecycle", "lifecycle.api", "lifecycle.allowing", "_version")
    assert ours == {"warmwatch", *(f"warmwatch.{name}" for name in needed)}
    assert found & ({"logging", "multiprocessing", "subprocess", "dataclasses"}) == set()
