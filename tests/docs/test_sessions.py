"""Every terminal session of the README and the tutorials is run, with real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import sessions
from support.sessions import Exchange, differs

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
README = ROOT / "README.md"  # it uses a training of a tutorial
PAGES = [README, *sorted(TUTORIALS.glob("*.md"))]
SHORT = "first-answer"  # the page that `make test` runs; the others take half a minute each


@pytest.mark.training
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem != SHORT)) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    shell = sessions.Shell(tmp_path)
    if page == README:
        for name, text in sessions.files((TUTORIALS / "first-recompile.md").read_text()).items():
            (tmp_path / name).write_text(text)
    try:
        for exchange, real in sessions.play(page.read_text(), shell):
            wrong = differs(exchange.output, real)
            assert wrong is None, "\n".join([exchange.shown, wrong, "--- really:", *real])
    finally:
        shell.close()


def test_times_phases_and_large_numbers_match_others_and_words_do_not() -> None:
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
