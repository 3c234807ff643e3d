"""README and docs against the code: settings, states, commands, links, and the index of pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from support import reference, sessions
from support.sessions import PAGES
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.record import REASONS
from warmwatch.shared.states import CONDITIONS, Conditions, State
from warmwatch.shared.variables import Internal, Monitor, Training, defaults
from warmwatch_monitor.commands import EXIT_CODES
from warmwatch_monitor.commands.cli import COMMANDS, cli
from warmwatch_monitor.status.schema.json_schema import definitions

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"


@pytest.mark.parametrize("path", reference.PAGES, ids=lambda path: path.stem)
def test_a_reference_page_matches_the_code(path: Path) -> None:
    assert path.read_text() == reference.PAGES[path](), (
        "run `cd tests && python -m support.reference`"
    )


def test_each_setting_has_a_deployment_that_needs_it() -> None:
    named = re.findall(r"`([A-Z_]+)`", (DOCS / "design" / "settings.md").read_text())
    assert sorted(f"WARMWATCH_{one}" for one in named) == sorted(defaults(Training, Monitor))


@pytest.mark.parametrize("document", reference.JSON_OUTPUT.values(), ids=reference.JSON_OUTPUT)
def test_every_key_of_json_output_has_a_description(document: type) -> None:
    for name, schema in definitions(document, ref_template="{name}").items():
        for key, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{key}"


def test_every_exit_code_is_in_the_help_and_in_the_docs() -> None:
    """Each that a command names in its own help, too."""
    known = {code for codes in EXIT_CODES for code in codes}
    table = (DOCS / "reference" / "commands.md").read_text().split("## Exit codes")[1]
    rows = re.findall(r"^\| (\d[\d, ]*) \|", table, re.MULTILINE)
    assert {int(code) for row in rows for code in row.split(", ")} == known
    for name in ("", *COMMANDS):
        words = [name, "--help"] if name else ["--help"]
        _, _, shown = CliRunner().invoke(cli, words).stdout.partition("Exit code:")
        named = {int(code) for code in re.findall(r"\b\d+\b", shown.partition("\n\n")[0])}
        assert named == known if not name else named <= known, name


def test_every_state_and_condition_is_documented() -> None:
    table = README.split("## What the states mean")[1].split("##")[0]
    assert {state.value for state in State} <= set(re.findall(r"`(\w+)`", table))
    assert [*reference.meanings(State)] == [state.name for state in State]
    assert [*reference.meanings(Conditions)] == [*CONDITIONS]


@pytest.mark.parametrize("table", [Training, Monitor, Internal])
def test_every_variable_has_a_meaning(table: type) -> None:
    assert [*reference.meanings(table)] == [*defaults(table)]


def test_no_page_shows_internal_variables_as_settings() -> None:
    listed = (DOCS / "reference" / "settings.md").read_text()
    assert [name for name in defaults(Internal) if name in listed] == []


def test_every_table_of_a_page_is_made() -> None:
    texts = [page.read_text() for page in DOCS.rglob("*.md")]
    found = [name for text in texts for name in re.findall(r"<!-- made by .*: (.+) -->", text)]
    assert sorted(found) == sorted(reference.TABLES)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_every_documented_make_target_exists(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_documented_command_exists() -> None:
    pages = README + (DOCS / "reference" / "commands.md").read_text()
    shown = set(re.findall(r"^\$ (?:.* && |.* & )?warmwatch ([a-z]+)", pages, re.MULTILINE))
    assert shown == set(COMMANDS)


def commands_of(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each call of ``warmwatch`` in the console blocks of a page, with its arguments."""
    for block in sessions.blocks(page.read_text()):
        if block.language != "console":
            continue
        for line in re.findall(r"^[$#] (.*)$", block.text.replace("\\\n", " "), re.MULTILINE):
            words = shlex.shlex(line, posix=True, punctuation_chars="&|;>")
            words.whitespace_split = True
            for is_end, part in groupby(words, lambda word: word in ("&", "&&", "|", ";", ">")):
                called = [] if is_end else [*part]
                if "warmwatch" in called[:-1]:
                    yield line, called[called.index("warmwatch") + 1 :]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_has_valid_options(page: Path) -> None:
    """Also of those that tests/docs/test_sessions.py cannot run."""
    for line, (name, *arguments) in commands_of(page):
        if name in COMMANDS:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            try:
                command.make_context(name, arguments)
            except click.ClickException as error:
                pytest.fail(f"{line}: {error.format_message()}")


def test_every_category_of_a_recompile_is_documented_with_its_remedy() -> None:
    text = (DOCS / "how-to" / "recompiles.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .+? \| (.+) \|$", text, re.MULTILINE)
    unknown = "none known: read the reason"
    assert rows == [(category, ADVICE.get(category, unknown)) for category in REASONS]


def _anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    retained = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower())
    return retained.strip().replace(" ", "-")


def _prose(page: Path) -> str:
    """The text outside of code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _targets(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", _prose(page))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_an_existing_file_and_heading(page: Path) -> None:
    for target in _targets(page):
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if fragment and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", _prose(file), re.MULTILINE)
            assert fragment in {_anchor(one) for one in headings}, f"{page.name}: {target}"


def test_the_indexes_list_every_page() -> None:
    """The navigation of the site is made from them, by docs/conf.py."""
    listed = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in DOCS.rglob("README.md")
        for target in re.findall(r"^\| \[.+?\]\((\S+)\)", index.read_text(), re.MULTILINE)
    }
    assert set(DOCS.rglob("*.md")) - listed == {DOCS / "README.md"}
    assert "docs/README.md" in _targets(ROOT / "README.md")


def test_every_documentation_page_named_in_the_code_exists() -> None:
    named = {
        match
        for folder in ("agent", "monitor", "tests", "dashboards", "docker", "benchmarks")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".yml", ".yaml", ".json", ".js", ".html"}
        for match in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(errors="replace"))
    }
    assert "docs/explanation/security.md" in named
    assert {name for name in named if not (ROOT / name).exists()} == set()
