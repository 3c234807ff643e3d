"""A document as GitHub Markdown, for a pull request or a job's summary. Pure.

All text is literal: Markdown and HTML syntax is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from warmwatch_monitor.output.document import Document, Item, Section, Table

_SIGNS = re.compile(r"([\\*_\[\]#|~<>&@$])")
_CODE = re.compile(r"`([^`\n]+)`")


def markdown(document: Document) -> str:
    """``document`` as Markdown."""
    return "\n".join(_lines(document)).rstrip("\n") + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield f"## {_plain(document.title)}"
    state = f"**{document.state}**: " if document.state else ""
    yield from ("", f"{state}{_plain(document.answer)}")
    for warning in document.warnings:
        yield from ("", f"> **Note:** {_plain(warning)}")
    if document.facts:
        yield ""
        yield from (f"- {name}: {_plain(value)}" for name, value in document.facts)
    for section in document.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"### {_plain(section.title)}", "")
    if section.table is not None:
        yield from _table(section.table)
        yield ""
    for item in section.items:
        yield from _item(item)
    if section.items and section.remarks:
        yield ""
    for remark in section.remarks:
        yield f"{_plain(remark)}  "


def _item(item: Item) -> Iterator[str]:
    yield f"- {_plain(item.words)}"
    yield from (f"  - {_plain(words)}" for words in item.more)


def _table(table: Table) -> Iterator[str]:
    yield _row(tuple(column.name for column in table.columns))
    yield "|" + "|".join("---:" if column.right else "---" for column in table.columns) + "|"
    yield from (_row(row) for row in table.rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """``text`` with its code in backticks and all other syntax escaped."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [_escaped(text[at : code.start()]), f"`{code[1].replace('|', chr(92) + '|')}`"]
        at = code.end()
    return "".join([*parts, _escaped(text[at:])]).replace("\n", " ")


def _escaped(text: str) -> str:
    return _SIGNS.sub(r"\\\1", text).replace("`", r"\`")
