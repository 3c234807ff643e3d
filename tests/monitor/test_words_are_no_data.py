"""No view reads sentences back: rewording one changes no logic.

The rooms that make and show sentences search, cut and compare none. Each function that does so with
a value that has the name of a sentence is here, with what it reads instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import warmwatch_monitor

HOME = Path(warmwatch_monitor.__file__).parent
ROOMS = ("status/words", "commands")
CUTS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"}
SPLITS = {"split", "rsplit", "find", "rfind", "replace"}  # of a constant: lists and Structs, too
# what a value that holds a sentence is called
SENTENCES = {"summary", "sentence", "words", "text", "head", "headline", "advice", "evidence"} | {
    *("title", "subtitle", "clause", "short", "paragraph", "remedy"),
}
READ = {
    "commands/export.py:_cell": "a formula of a spreadsheet",
    "commands/modes/command.py:_duration": "an argument",
    "commands/report/html.py:_bar": "backticks around a name",
    # the history has the sentence of an ended run without its clauses: a condition is shown once
    "commands/report/wording.py:answer": "a condition in the sentence",
    "commands/runs.py:_moment": "an argument",
    "commands/terminal/redrawn.py:_that_fits": "lines",
    "commands/terminal/reasons.py:reasons": "whether a remedy stands above already",
    "commands/top/detail.py:_plots": "whether a line stands above already",
}
# what the page reads, each with a part of its line
READ_BY_PAGE = (
    "(\\d) (?=",  # a number and its unit, which stay on one line
    "reason.match(",  # the places in a guard of PyTorch
    "const quoted",  # a run's name in a command
    'shown.split("`")',  # backticks around a name
    "/^[a-z_]+$/",  # a name that a style sheet may have
)
_BY_PAGE = re.compile(r"\.(startsWith|endsWith|match|search|split|test)\(|\.replace\(/|RegExp")


def readings(source: str) -> set[str]:
    """The functions in which a text is searched or cut."""
    functions = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef))
    return {one.name for one in functions if any(map(is_reading, ast.walk(one)))}


def is_reading(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner, arguments, does = node.func.value, node.args, node.func.attr
        if isinstance(owner, ast.Name) and owner.id == "re":
            return any(map(is_sentence, arguments))
        constant = bool(arguments) and isinstance(arguments[0], ast.Constant)
        return is_sentence(owner) and (does in CUTS or (does in SPLITS and constant))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return is_sentence(node.comparators[0])
    return False


def is_sentence(value: ast.AST) -> bool:
    """Whether it has the name of a sentence: ``text``, ``run["summary"]``, ``x.head.strip()``."""
    if isinstance(value, ast.Call):
        return is_sentence(value.func.value) if isinstance(value.func, ast.Attribute) else False
    if isinstance(value, ast.Subscript):
        key = value.slice
        return is_sentence(value.value) or (
            isinstance(key, ast.Constant) and key.value in SENTENCES
        )
    return getattr(value, "attr", getattr(value, "id", None)) in SENTENCES


def found() -> Iterator[str]:
    for room in ROOMS:
        for file in sorted((HOME / room).rglob("*.py")):
            for name in readings(file.read_text()):
                yield f"{file.relative_to(HOME)}:{name}"


def test_no_room_with_sentences_searches_or_cuts_them() -> None:
    assert set(found()) == set(READ)


def test_the_page_neither() -> None:
    lines = [
        line for file in (HOME / "page").glob("*.js") for line in file.read_text().splitlines()
    ]
    reads = [line for line in lines if _BY_PAGE.search(line)]
    assert [line for line in reads if not any(part in line for part in READ_BY_PAGE)] == []


def test_what_reads_a_sentence_is_found() -> None:
    for reading in (
        *("text.startswith(LIMITED)", "x.summary.replace('warm', '')", "words in x.summary"),
        *("re.split(BEFORE, x.title)", "run['summary'].strip().partition(';')"),
    ):
        assert readings(f"def of(x):\n    return {reading}") == {"of"}
    for other in ("structs.replace(x, text='')", "x.path.endswith('.csv')", "re.match(NAME, x)"):
        assert readings(f"def of(x):\n    return {other}") == set()
