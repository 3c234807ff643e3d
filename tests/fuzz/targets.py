"""The list of targets: what is fuzzed, and how many inputs each run of the tests gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuzz import fleet, gpus, records, web

Fuzzed = Callable[[bytes], None]
CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One input.

    Attributes:
        open: makes what takes its bytes, given an empty directory.
        examples: how many of them the tests make up.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[Fuzzed]]
    examples: int

    def corpus(self) -> list[Path]:
        """What broke it once, and what leads a long run into its corners."""
        return sorted((CORPUS / self.name).glob("*"))


@contextmanager
def _records(folder: Path) -> Iterator[Fuzzed]:
    """In two records of one run: one that lives, and one that is gone."""
    with records.way(folder, 2) as way:
        yield lambda data: way((data, data))


@contextmanager
def _web(_folder: Path) -> Iterator[Fuzzed]:
    with web.web() as ask:
        yield ask


@contextmanager
def _fleet(_folder: Path) -> Iterator[Fuzzed]:
    yield fleet.ask


@contextmanager
def _gpus(folder: Path) -> Iterator[Fuzzed]:
    with gpus.gpus(folder) as ask:
        yield ask


TARGETS = (
    Target(name="records", open=_records, examples=200),
    Target(name="web", open=_web, examples=200),
    Target(name="fleet", open=_fleet, examples=250),
    Target(name="gpus", open=_gpus, examples=150),
)
