"""The trainings in ``scripts/``, and what each needs: comment lines below its docstring.

- ``core``: also in ``make test``.
- ``fresh``: in a new Python, not in a fork of one that has imported PyTorch and its compiler.
- ``long``: only if it is named, or with ``--long``.
- ``python: OPTIONS``: options of the interpreter; they need a new one.
- ``environment: NAME=VALUE``: a variable, not set if ``VALUE`` is empty; any number of lines.
- ``fault: REASON``: a known fault of the agent, which still changes this training; after
  ``torch 2.15:`` of that PyTorch alone.
- ``exit: CODE``: the exit code that it must have; 0 by default, minus a signal's number.
- ``ranks: COUNT``: processes that are started together.
- ``steps: COUNT ...``: optimizer steps that the training makes, one number for each process that
  makes some.
- ``torch: 2.8``: the first PyTorch that can run it.
- ``unseen``: its end leaves no report.
- ``seconds: COUNT``: after which it hangs; 240 by default.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support.torch_versions import VERSION

SCRIPTS = Path(__file__).parent / "scripts"
_LIBRARY = {"optimizers"}  # what scripts import
_HEADER = re.compile(
    r"# (core|fresh|long|python|environment|exit|fault|ranks|steps|torch|seconds|unseen)(?:: (.+))?"
)


@dataclass(frozen=True, slots=True)
class Training:
    """One script and its needs."""

    path: Path
    title: str
    core: bool = False
    fresh: bool = False
    long: bool = False
    python: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    exit: int = 0
    ranks: int = 1
    steps: tuple[int, ...] | None = None
    torch: tuple[int, ...] = ()
    seconds: float = 240.0
    unseen: bool = False
    fault: str = ""

    @property
    def name(self) -> str:
        return self.path.stem


def all_trainings() -> list[Training]:
    """Every training, by name."""
    paths = sorted(path for path in SCRIPTS.glob("*.py") if path.stem not in _LIBRARY)
    return [read(path) for path in paths]


def read(path: Path) -> Training:
    """A training with the needs in its header.

    Raises:
        ValueError: the header is no header, or the script has no docstring.
    """
    docstring, _, rest = path.read_text().removeprefix('"""').partition('"""\n')
    values: dict[str, list[str]] = {}
    for line in rest.splitlines():
        if not line.startswith("#"):
            break
        if not (found := _HEADER.fullmatch(line)):
            raise ValueError(f"{path.name}: no such need: {line}")
        values.setdefault(found[1], []).append(found[2] or "")
    one = {name: value[-1] for name, value in values.items()}
    python = tuple(shlex.split(one.get("python", "")))
    pairs = (line.partition("=") for line in values.get("environment", ()))
    return Training(
        path=path,
        title=docstring.splitlines()[0],
        core="core" in one,
        fresh="fresh" in one or bool(python),
        long="long" in one,
        python=python,
        environment=tuple((name, value) for name, _, value in pairs),
        exit=int(one.get("exit", "0")),
        ranks=int(one.get("ranks", "1")),
        steps=tuple(sorted(map(int, one["steps"].split()))) if "steps" in one else None,
        torch=tuple(map(int, one["torch"].split("."))) if "torch" in one else (),
        fault=_fault(values.get("fault", ())),
        unseen="unseen" in one,
        seconds=float(one.get("seconds", "240")),
    )


def _fault(lines: Iterable[str]) -> str:
    """The known fault with the installed PyTorch."""
    found = [re.fullmatch(r"(?:torch (\d+\.\d+): )?(.+)", line) for line in lines]
    return next((one[2] for one in found if one and one[1] in (None, VERSION)), "")
