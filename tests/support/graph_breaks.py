"""Graph breaks as data: a function that breaks, and its twin that does what the remedy says.

Files of ``tests/process/breaks/`` have the tables. A body is a function's of ``x``, a tensor; of a
broken one the first line breaks, or those marked with ``#!``.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from support.trainings import ROOT

FOLDER = ROOT / "tests" / "process" / "breaks"
# What the remedy of most breaks says
OUTSIDE = "outside of the compiled function"
# Around a body: PyTorch resumes in none of them after a break.
AROUND = (
    "for _ in range(2):\n{}",
    "try:\n{}\nexcept ZeroDivisionError:\n    raise",
    "with torch.enable_grad():\n{}",
)
NAME = "broken"
_MARK = "#!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One break.

    Attributes:
        cause, remedy: words of them. broken, cured: bodies of the twins. outside: what the caller
            of the cured one computes, its ``v``. adds: to the settings that are sets, as the remedy
            says. despite: settings of the remedy under a condition that does not hold here.
        varies: it returns something else in each call, or in another place.
        since: the first version of PyTorch that breaks so.
    """

    subject: str
    name: str
    cause: str
    broken: str
    cured: str
    remedy: str = OUTSIDE
    outside: str = ""
    adds: str = ""
    despite: tuple[str, ...] = ()
    varies: bool = False
    since: tuple[int, int] = (2, 13)

    @property
    def file(self) -> str:
        return f"{self.subject}.py"

    def lines(self, body: str) -> set[int]:
        marked = {number for number, line in enumerate(body.split("\n"), 2) if _MARK in line}
        return marked or {2}

    def function(self, body: str, names: dict[str, Any], around: str = "{}") -> Any:
        """The compiled function of this body, and the lines that break."""
        text = around.format(textwrap.indent(body, "    ")) if around != "{}" else body
        source = f"def {NAME}(x, v=None):\n{textwrap.indent(text, '    ')}"
        scope = dict(names)
        exec(compile(source, self.file, "exec"), scope)
        return scope[NAME]


@cache
def names_of(subject: str) -> dict[str, Any]:
    """What the file of the subject defines. Dynamo imports a module to trace its functions."""
    name = f"breaks_at_{subject}"
    spec = spec_from_file_location(name, FOLDER / f"{subject}.py")
    assert spec
    assert spec.loader
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def every() -> list[Break]:
    return [each for path in sorted(FOLDER.glob("[a-z]*.py")) for each in _of(path.stem)]


def _of(subject: str) -> Iterator[Break]:
    tables = names_of(subject)
    for name, row in tables["MOVED"].items():
        cause, line, *rest = row
        use, *varies = rest or ("x + 1",)
        is_value = bool(rest)
        yield Break(
            subject=subject,
            name=name,
            cause=cause,
            broken=f"{'v = ' if is_value else ''}{line}\nreturn {use}",
            cured=f"return {use}",
            outside=line,
            varies=bool(varies),
        )
    for name, row in tables["CURED"].items():
        yield Break(subject=subject, name=name, **row)


def settings_of(remedy: str) -> list[str]:
    return re.findall(r"torch\._dynamo\.config\.(\w+)", remedy)
