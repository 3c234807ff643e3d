"""Every command of every page is run and prints the output of the page.

Those of the README and the tutorials with real trainings; the others on ``support.machine``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from support import sessions
from support.machine import COMPILED_SCRIPT, machine
from support.nvml import Standin
from support.sessions import PAGES, Exchange, blocks, differs, exchanges
from warmwatch_monitor.commands import py_spy

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
README = ROOT / "README.md"  # it uses a training of a tutorial
SESSIONS = [README, *sorted(TUTORIALS.glob("*.md"))]
SHORT = "first-answer"  # the page that `make test` runs; the others take half a minute each


def runnable(page: Path) -> list[Exchange]:
    """The commands of a page that can run here."""
    return [
        exchange
        for block in blocks(page.read_text())
        if block.language == "console" and block.not_run is None
        for exchange in exchanges(block.text)
    ]


@pytest.mark.first
@pytest.mark.training
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem != SHORT)) for page in SESSIONS],
    ids=lambda page: page.stem,
)
def test_a_page_shows_the_output_of_its_commands(page: Path, tmp_path: Path) -> None:
    shell = sessions.Shell(tmp_path)
    if page == README:
        for name, text in sessions.files((TUTORIALS / "first-recompile.md").read_text()).items():
            (tmp_path / name).write_text(text)
    try:
        play(sessions.play(page.read_text(), shell), shell, compare_silence=True)
    finally:
        shell.close()


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin(tmp_path_factory.mktemp("nvml"))


def trains(command: str) -> bool:
    """Whether it trains more than once, with a compiler."""
    return re.match(r"warmwatch (modes\b|check\b|doctor -- )", command) is not None


def exit_codes(command: str) -> set[int]:
    """1: nothing compiles there; the load of this machine decides how long a warm-up took."""
    if command.startswith("warmwatch check --against"):
        return {0, 1}
    return {1} if command == "warmwatch stacks" else {0}


OTHERS = [page for page in PAGES if page not in SESSIONS and runnable(page)]


QUICK = ("commands", "read-a-report", "recompiles", "history", "http", "compile-checks")


@pytest.mark.training
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem not in QUICK)) for page in OTHERS],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, nvml: Standin) -> None:
    if page.stem == "debug-a-hang" and py_spy.find():
        pytest.skip("the page has a machine without py-spy")
    with machine(tmp_path, page.read_text(), nvml) as (shell, text):
        quick = sessions.play(text, shell, lambda command: not trains(command))
        play(quick, shell, compare_silence=False)


@pytest.mark.training
@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [page for page in OTHERS if any(trains(one.command) for one in runnable(page))],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_train(page: Path, tmp_path: Path, nvml: Standin) -> None:
    with machine(tmp_path, page.read_text(), nvml, COMPILED_SCRIPT) as (shell, text):
        shell.run("mkdir ci")  # with a baseline of this machine, and of any load
        measure = "check --tolerance 1000 --baseline ci/compiles.json --update"
        shell.run(f"warmwatch {measure} -- python train_smoke.py")
        assert shell.code == 0
        play(sessions.play(text, shell, trains), shell, compare_silence=False)


def play(
    played: Iterable[tuple[Exchange, list[str]]], shell: sessions.Shell, *, compare_silence: bool
) -> None:
    """Compare each output, and exit codes where silence says nothing.

    A command may fail only where the page shows its exit code next.
    """
    failed = None
    for exchange, real in played:
        assert failed is None or exchange.command == "echo $?", failed
        ran = "\n".join([exchange.shown, f"exit code {shell.code}", "--- really:", *real])
        compares = compare_silence or bool(exchange.output)
        wrong = differs(exchange.output, real) if compares else None
        assert wrong is None, f"{wrong}\n{ran}"
        fails = not compare_silence and shell.code not in exit_codes(exchange.command)
        failed = ran if fails else None
    assert failed is None, failed


def test_times_phases_and_large_numbers_may_differ_and_words_may_not() -> None:
    real = ["gpt2: compiling for 2.1 s (inductor)", "rank  steps", "   0     75"]
    first = "gpt2: compiling for 1 min (dynamo)"
    assert differs([first, "rank  steps", "   0    112"], real) is None
    assert differs([first, "rank  steps", "   0      7"], real) == "   0      7"
    assert differs([first, "..."], real) is None
    assert differs([first], real) is not None, "the page leaves lines out and does not show it"
    assert differs(["...", "   0     75"], real) is None
    assert differs(["...", "rank  clean"], real) == "rank  clean"
    assert differs(["rank  steps", "..."], real) == "rank  steps"
    assert differs([first.replace("gpt2", "gpt3"), "..."], real) is not None
    assert differs([first.replace("compiling", "warm"), "..."], real) is not None


def test_the_readme_has_at_most_600_words() -> None:
    assert len(README.read_text().split()) <= 600


def test_a_console_block_is_commands_and_their_output() -> None:
    block = "$ warmwatch status  # one look\ngpt2: warm\n$ make demo\n"
    assert list(sessions.exchanges(block)) == [
        Exchange("$ warmwatch status  # one look", "warmwatch status", ["gpt2: warm"]),
        Exchange("$ make demo", "make demo", []),
    ]


def test_a_change_is_applied_once_or_fails(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("a = 1\nb = 2\n")
    sessions.apply(" a = 1\n-b = 2\n+b = 3\n", file)
    assert file.read_text() == "a = 1\nb = 3\n"
    with pytest.raises(AssertionError, match=r"not in train\.py once"):
        sessions.apply("-b = 2\n+b = 3\n", file)
