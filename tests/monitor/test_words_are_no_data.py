"""No view reads sentences back: rewording one changes no logic.

The rooms that make and show sentences search, cut and compare no texts. Each function that does is
here, with what it reads instead of a sentence of ours.
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
SENTENCES = {"summary", "sentence", "words", "text", "head", "headline", "advice", "evidence"}
READ = {
    "status/words/conditions.py:_label": "backticks around a name",
    "status/words/fallbacks.py:_differing": "a guard of PyTorch",
    "status/words/repeating.py:failure": "the name of an exception's type",
    "status/words/requested.py:plain_skip": "a reason of PyTorch",
    "commands/check/baseline.py:numbers": "an argument",
    "commands/check/wording.py:_moved": "a file of PyTorch's",
    "commands/cli.py:resolve_command": "an argument",
    "commands/doctor/checks.py:_torch": "a version",
    "commands/doctor/compile_host.py:_default": "a path",
    "commands/doctor/compile_host.py:_groups": "a file of /proc",
    "commands/doctor/compile_host.py:_mount": "a path",
    "commands/doctor/guard_checks.py:_function": "the number of a compilation",
    "commands/doctor/hook_checks.py:_findings": "JSON lines",
    "commands/doctor/hook_checks.py:hooks": "the name of a variable",
    "commands/doctor/host_checks.py:_place": "a kind of filesystem",
    "commands/doctor/issue_report.py:_hidden": "the user's names in a finding",
    "commands/doctor/issue_report.py:_stand_ins": "a path",
    "commands/report/charts.py:_bar": "backticks around a name",
    "commands/report/charts.py:_compilation": "backticks around a name",
    "commands/report/command.py:traced": "the name of a file",
    "commands/report/compilations.py:_is_without_grad": "a guard of PyTorch",
    "commands/report/html.py:words": "backticks around a name",
    "commands/report/html.py:_style": "a style sheet",
    "commands/report/remedies.py:_without_compiling": "a stance of PyTorch",
    "commands/report/wording.py:_wrapping": "an option of torch.compile",
    "commands/report/wording_compilations.py:_failed": "the name of an exception's type",
    # the history has the sentence of an ended run without its clauses: a condition is shown once
    "commands/report/wording.py:answer": "a condition in the sentence",
    "commands/top/detail.py:_paragraphs": "an indented line",
    "commands/top/detail.py:_plots": "whether a line stands above already",
    "commands/__init__.py:_run": "an argument",
    "commands/__init__.py:without_extra": "an argument",
    "commands/cache_misses.py:_named": "a frame of PyTorch's kernel",
    "commands/cache_misses.py:_unpacked": "a part of a cache key",
    "commands/cache_misses.py:differing": "a part of a cache key",
    "commands/demo.py:environment": "the name of a variable",
    "commands/export.py:_cell": "a formula of a spreadsheet",
    "commands/export.py:_compiled": "backticks around a name",
    "commands/export.py:_written": "the name of a file",
    "commands/py_spy.py:_frame": "the name of a file",
    "commands/py_spy.py:_is_agents": "the name of a file",
    "commands/py_spy.py:_refused": "an error of py-spy",
    "commands/stacks.py:_doing": "the kernel's line of a thread",
    "commands/stacks.py:dumped_stacks": "Python's own dump",
    "commands/wait.py:_goals": "an argument",
    "commands/modes/command.py:_duration": "an argument",
    "commands/modes/command.py:script_name": "an argument",
    "commands/modes/command.py:_last_lines": "the output of the script",
    "commands/modes/drift.py:read_guards": "the name of a file",
    "commands/modes/one_mode.py:_peak_resident_bytes": "a file of /proc",
    "commands/modes/stopping.py:_effort": "a mode of torch.compile",
    "commands/modes/wording.py:_count": "the name of a count",
    "commands/terminal/functions.py:_named": "backticks around a name",
    "commands/runs.py:_moment": "an argument",
    "commands/status.py:_that_fits": "lines",
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
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
            return True
        constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
        return node.func.attr in CUTS or (node.func.attr in SPLITS and constant)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        searched = node.comparators[0]
        return getattr(searched, "attr", getattr(searched, "id", None)) in SENTENCES
    return False


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
    assert readings("def of(x):\n    return x.startswith(LIMITED)") == {"of"}
    assert readings("def of(x):\n    return x.summary.replace('warm', '')") == {"of"}
    assert readings("def of(x):\n    return words in x.summary") == {"of"}
    assert readings("def of(x):\n    return re.split(BEFORE, x)") == {"of"}
    assert readings("def of(x):\n    return structs.replace(x, text='')") == set()
