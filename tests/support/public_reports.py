"""The trainings of ``tests/process/reports/``, and ``python -m support.public_reports``.

The command runs all of them and writes their section of accuracy.md.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.accuracy import DOCUMENT, ESTIMATES, REPORTS
from support.daemon import completed
from support.torch_versions import TORCH, VERSION
from support.trainings import ROOT, environment, result_of

FOLDER = ROOT / "tests" / "process" / "reports"
_COUNTS = "\nfrom _loop import counts\nresult(counts())\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicReport:
    """One training, and what is true of it.

    Attributes:
        about: what happens. source: where people reported it.
        recompiles, breaks, graphs: PyTorch's counts. cured: of what the remedy is for, with the
            remedy; ``None``: it happens once, and nothing needs a remedy.
        category: of the recompiles; ``None``: any. names: identifiers that the cause must name.
        remedy: words of PyTorch's that the remedy must contain. needs: what PyTorch must do for it
            to happen, a field of ``torch_versions.Reports``. ``versions`` in a file has what else
            is true with another PyTorch.
    """

    name: str
    about: str
    source: str
    recompiles: int
    breaks: int = 0
    graphs: int | None = None
    cured: int | None = None
    category: str | None = None
    names: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    needs: str = ""

    @property
    def happens(self) -> bool:
        """With the installed PyTorch."""
        return not self.needs or bool(getattr(TORCH, self.needs))

    @property
    def script(self) -> str:
        return (FOLDER / f"{self.name}.py").read_text()

    @property
    def faults(self) -> str:
        """The count that the remedy reduces."""
        return (
            "graphs" if self.graphs is not None else "recompiles" if self.recompiles else "breaks"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What ran: PyTorch's counts, those with the remedy, and the report."""

    counts: dict[str, int]
    cured: dict[str, int] | None
    report: dict[str, Any]

    @property
    def causes(self) -> list[str]:
        """Reasons of recompiles and of graph breaks, as a person reads them; or else what the
        remedies are about."""
        said = [why for one in self.report["recompiled"] for why in one["reasons"]]
        said += [one["reason"] for one in self.report["breaks"]]
        return said or [one["about"] for one in self.report["do"]]

    @property
    def remedies(self) -> list[str]:
        """What to do first, and the advice of each recompile and break: some cost too little."""
        each = [one["advice"] for one in (*self.report["recompiled"], *self.report["breaks"])]
        return [*(one["what"] for one in self.report["do"]), *filter(None, each)]


@cache
def every() -> tuple[PublicReport, ...]:
    return tuple(_read(path) for path in sorted(FOLDER.glob("[a-z]*.py")))


def _read(path: Path) -> PublicReport:
    tree = ast.parse(path.read_text())
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("SOURCE", "EXPECT")
    }
    expected = assigned["EXPECT"]
    others = expected.pop("versions", {})
    return PublicReport(
        name=path.stem,
        about=ast.get_docstring(tree) or "",
        source=assigned["SOURCE"],
        **{**expected, **others.get(VERSION, {})},
    )


def answer(one: PublicReport, records: Path) -> Answer:
    """Run it with the agent, and without it with the remedy applied."""
    paths = f"{FOLDER}{os.pathsep}{environment(records)['PYTHONPATH']}"
    body = one.script + _COUNTS
    counts = result_of(records, body, env={"PYTHONPATH": paths})
    cured = None
    if one.cured is not None:
        cured = result_of(
            records, body, name="cured", attach=False, env={"PYTHONPATH": paths, "CURED": "1"}
        )
    told = completed("report", "train", "--json", "--dir", str(records), env=environment(records))
    assert told.returncode == 0, told.stderr
    return Answer(counts=counts, cured=cured, report=json.loads(told.stdout))


def wrong(one: PublicReport, said: Answer) -> list[str]:
    """Everything that is not as it must be."""
    causes, remedies = " ".join(said.causes), " ".join(said.remedies)
    found = [
        f"PyTorch counts {said.counts[what]} {what}, {true} were expected"
        for what in ("recompiles", "breaks", *(["graphs"] if one.graphs is not None else []))
        if said.counts[what] != (true := getattr(one, what))
    ]
    if said.cured is not None and said.cured[one.faults] != one.cured:
        found.append(f"with the remedy PyTorch counts {said.cured}, not {one.cured}")
    categories = {each["category"] for each in said.report["recompiled"]}
    if one.category is not None and categories != {one.category}:
        found.append(f"the category is {categories}, not {one.category}")
    found += [f"the cause lacks {name!r}: {causes}" for name in one.names if name not in causes]
    found += [
        f"the remedy lacks {name!r}: {remedies}" for name in one.remedy if name not in remedies
    ]
    return found


def _number(count: int, what: str) -> str:
    return f"{count} {what.removesuffix('s') if count == 1 else what}"


def _first(causes: list[str]) -> str:
    """The first of several causes, which differ in their values."""
    first, *others = dict.fromkeys(causes) or [""]
    return f"{first}; {len(others)} more" if len(others) > 1 else "; ".join((first, *others))


def _row(one: PublicReport, said: Answer) -> str:
    count, cured = said.counts[one.faults], ""
    if said.cured is None:
        cured = ", which needs no remedy"
    elif said.cured[one.faults]:
        cured = f", {said.cured[one.faults]} with the remedy"
    faults = wrong(one, said)
    result = f" **Wrong:** {'; '.join(faults)}." if faults else ""
    return (
        f"- {one.source}: {one.about.rstrip('.')} ({_number(count, one.faults)}{cured}):"
        f" {_first(said.causes) or 'no cause is named'}.{result}"
    )


def main() -> int:
    rows = []
    for one in every():
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records"
            records.mkdir(mode=0o700)
            rows.append((one, answer(one, records)))
        print(one.name, wrong(*rows[-1]) or "right", flush=True)
    text = DOCUMENT.read_text()
    before, after = text.partition(REPORTS)[0].rstrip("\n"), text.partition(ESTIMATES)[2]
    if REPORTS not in text:
        before = text.partition(ESTIMATES)[0].rstrip("\n")
    table = "\n".join(_row(*row) for row in rows)
    DOCUMENT.write_text(f"{before}\n\n{REPORTS}\n\n{_HEAD}{table}\n\n{ESTIMATES}{after}")
    return any(wrong(*row) for row in rows)


_HEAD = """## Public reports

Written by `cd tests && PYTHONPATH=. python -m support.public_reports`. Each is the smallest
training of a public issue (`tests/process/reports/`), run with the agent, and again without it with
the remedy applied: what PyTorch counts (none with the remedy, unless there is a number), and the
cause that Warmwatch names. Cause and remedy are right, unless it says *wrong*.

"""

if __name__ == "__main__":
    sys.exit(main())
