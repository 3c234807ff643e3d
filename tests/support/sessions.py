"""Runs the terminal sessions of a documentation page, and compares what the page shows.

A page's blocks are taken from top to bottom, in one directory and one shell:

- a block that begins with a comment with a file's name (``# train.py``) is that file;
- a ``diff`` block changes the file that was written last;
- the lines of a ``console`` block that begin with ``$`` are run, and the others are their output;
- a ``bash`` block is run.

Durations, phases and numbers above 9 differ from run to run: they match any other. A line ``...``
stands for any lines. ``python -m support.sessions PAGE...`` writes the real output into pages.

A comment ``<!-- not run: REASON -->`` above a block leaves it out; ``NOT_RUN`` lists the reasons.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from support import trainings
from warmwatch.shared.record import PHASES

PAGES = sorted(
    {*trainings.ROOT.glob("*.md"), *(trainings.ROOT / "docs").rglob("*.md")}
    | {trainings.ROOT / name / "README.md" for name in ("benchmarks", "dashboards", "docker")}
)
_FENCE = re.compile(
    r"^(?:<!-- not run: (.+?) -->\n+)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL
)
NAMED = re.compile(r"\A# (\S+\.\w+)\n")
COMMAND = re.compile(r"^[$#] ((?:.*\\\n)*.+?)(?:\s+# .*)?$", re.MULTILINE)

# What other tests run: the page shows the command, and this runner leaves it out.
RUN_ELSEWHERE = {
    "pip install '.[monitor]'": "tests/process/test_wheel.py",
    "make demo": "the command itself, in under 4 minutes",
    "make test": "the command itself",
    "warmwatch demo": "make demo",
    "warmwatch doctor --hooks": "tests/process/test_missing_hooks.py",
}
# Why a block is not run, and a pattern of what is missing here: the block has it.
NOT_RUN = {
    "needs a container engine": "docker",
    "needs a Kubernetes cluster": "kubectl",
    "needs Helm and a cluster": "helm",
    "needs a Slurm cluster": "sbatch",
    "needs another tool": "tlparse|traceml|nvitop|dcgm|wandb|ft_launcher|otlp",
    "changes this machine as root": "^# .*(install |systemctl )",
    "downloads packages": "pip install",
    "takes minutes": "^\\$ make ",
    "is for three shells": "fish_source",  # tests/docs/test_blocks.py
    "is a proposal to PyTorch": "torch.compiler.register_event_callback",
}

# A daemon of this machine would answer for its own runs.
NO_DAEMON = """warmwatch() {
    case $1 in
    status | wait | report | compare) command warmwatch "$1" --dir "$WARMWATCH_DIR" "${@:2}" ;;
    *) command warmwatch "$@" ;;
    esac
}"""

NUMBER = r"\d[\d,]*(?:\.\d+)?"
VARYING = [
    (re.compile(rf"\b{NUMBER} (?:us|ms|s|min|h)(?: {NUMBER} (?:s|min))?(?![\w.])"), "<time>"),
    (re.compile(rf"\b(?:{'|'.join(PHASES)})\b"), "<phase>"),
    # a few steps later it has enough of them, or the machine is idle
    (
        re.compile(r" so far(, of \d+ steps\b|, getting \w+(: <time> in the last \d+ steps\b)?)?"),
        " is the real speed",
    ),
    (re.compile(r"(?<=the real speed) on average"), ""),  # on a loaded machine steps differ
    (re.compile(r"\bof \d+ steps\b"), "of <number> steps"),
    (re.compile(r": kernels \d+ of \d+"), ""),
    (re.compile(r"\b(?:\d{4}-)?\d\d-\d\d \d\d:\d\d(?::\d\d)?\b"), "<moment>"),
    (re.compile(r"\b(?:\d+\.\d+|\d[\d,]+)(?!\w)"), "<number>"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"\s+"), " "),
]


@dataclass
class Block:
    """One block of code of a page."""

    language: str
    text: str
    not_run: str | None  # the reason, one of NOT_RUN


@dataclass
class Exchange:
    """One command of a page, and the lines that the page shows below it."""

    shown: str  # with its prompt and its comment
    command: str
    output: list[str]


class Shell:
    """One interactive-like shell: jobs in the background go on from command to command.

    Attributes:
        code: the exit code of the last command.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        environment = {
            **trainings.environment(folder / ".records"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "WARMWATCH_STATE": str(folder / ".state"),
            "COLUMNS": "100",
            **variables,
        }
        (folder / ".records").mkdir(exist_ok=True)
        self.folder, self.code = folder, 0
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.run(
            "set -m -o pipefail; exec 2>&1"
        )  # jobs of their own process groups, as in a terminal
        if "WARMWATCH_ADDRESS" not in variables:
            self.run(NO_DAEMON)

    def run(self, command: str) -> list[str]:
        """Its output, line by line. The output of a background job goes to a file."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        end = f"end-of-{secrets.token_hex(8)}"
        if command.endswith(" &"):
            command = f"{command[:-2]} > .background 2>&1 &"
        # the next command still finds this one's exit code in $?
        self._bash.stdin.write(f"{command}\ncode=$?; echo {end} $code; (exit $code)\n")
        self._bash.stdin.flush()
        lines = []
        for line in self._bash.stdout:
            text, found, code = line.partition(end)
            if found:
                self.code = int(code)
                lines += [text] * bool(text)  # output without an end of its line
                return [one for one in lines if not re.match(r"\[\d+\]", one)]
            lines.append(line.rstrip())
        raise AssertionError(f"the shell ended in {command!r}: {lines}")

    def close(self) -> None:
        """End the shell and its jobs."""
        try:
            self.run("kill -KILL $(jobs -p) 2>/dev/null; wait")
        finally:
            self._bash.terminate()
            self._bash.wait()


def blocks(page: str) -> Iterator[Block]:
    """The blocks of code of a page, top to bottom."""
    for reason, _, language, text in _FENCE.findall(page):
        yield Block(language, dedent(text), reason or None)


def exchanges(block: str) -> Iterator[Exchange]:
    """The commands of a console block."""
    for part in re.split(r"^(?=[$#] )", block, flags=re.MULTILINE)[1:]:
        found = COMMAND.match(part)
        assert found is not None, part
        yield Exchange(found[0], found[1], part[found.end() + 1 :].splitlines())


def apply(diff: str, path: Path) -> None:
    """Change a file as a ``diff`` block without line numbers shows."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(before) == 1, f"the change is not in {path.name} once:\n{before}"
    path.write_text(text.replace(before, after))


def play(
    page: str, shell: Shell, chosen: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[Exchange, list[str]]]:
    """Each chosen command of a page with its real output, after all that stands before it."""
    written = None
    for block in blocks(page):
        named = NAMED.match(block.text)
        if block.not_run is not None:
            continue
        if block.language == "console":
            for exchange in exchanges(block.text):
                if exchange.command not in RUN_ELSEWHERE and chosen(exchange.command):
                    yield exchange, shell.run(exchange.command)
        elif block.language == "bash":
            yield Exchange(block.text, block.text, []), shell.run(block.text)
        elif block.language == "diff":
            assert written is not None, "a change of no file"
            apply(block.text, written)
        elif named is not None:
            written = shell.folder / named[1]
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(block.text)


def files(page: str) -> dict[str, str]:
    """The files that the blocks of a page are, by name."""
    texts = [block.text for block in blocks(page)]
    return {named[1]: text for text in texts if (named := NAMED.match(text)) is not None}


def normal(line: str) -> str:
    """A line with what varies replaced."""
    for pattern, name in VARYING:
        line = pattern.sub(name, line)
    return line.strip()


def differs(shown: list[str], real: list[str]) -> str | None:
    """The first shown line that is not in the real output, in order."""
    rest = [normal(line) for line in real if line]
    anywhere = False
    for line in filter(None, shown):
        if line.strip() == "...":
            anywhere = True
            continue
        wanted = normal(line)
        if wanted not in (rest if anywhere else rest[:1]):
            return line
        rest = rest[rest.index(wanted) + 1 :]
        anywhere = False
    return None if anywhere or not rest else f"(the page ends before) {rest[0]}"


def rewrite(path: Path) -> None:
    """Write the real output into a page where it shows another; an excerpt is only reported."""
    page = path.read_text()
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder))
        try:
            for exchange, real in play(page, shell):
                old = "".join(f"{line}\n" for line in [exchange.shown, *exchange.output])
                start = page.index(old, done)
                new = old
                wrong = differs(exchange.output, real)
                if wrong is not None and "..." in map(str.strip, exchange.output):
                    sys.stderr.write(f"{path}: edit by hand, the output has no line {wrong!r}\n")
                elif wrong is not None:
                    new = "".join(f"{line}\n" for line in [exchange.shown, *real])
                page = page[:start] + new + page[start + len(old) :]
                done = start + len(new)
                sys.stdout.write(f"{exchange.shown}\n" + "\n".join(real) + "\n")
                sys.stdout.flush()
        finally:
            shell.close()
    path.write_text(page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
