"""Compilations as they end, what the caches said, and where PyTorch gave up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmwatch import record
from warmwatch._activity import Activity
from warmwatch._applied.answers import Answers
from warmwatch._applied.book import Book
from warmwatch._asked import Functions
from warmwatch._components import Told
from warmwatch.record import COMPILE_INDEX as AT

_MOST_SKIPS = 100  # that are told: PyTorch says it once for each graph


class Compilations:
    """How many there were of each kind, and a line for each."""

    def __init__(
        self, book: Book, answers: Answers, functions: Functions, activity: Activity
    ) -> None:
        self._book, self._words, self._store = book, book.words, book.store
        self._answers, self._functions = answers, functions
        self._told_keys = Told()
        self._told_skips = 0
        self._activity, self._accounted = activity, activity.phases_at(0)
        self._at_limit: set[Any] = set()

    def compilation(self, kind: str, values: Mapping[str, Any], now: int) -> None:
        words = self._words
        words[AT["compilations"] + record.KINDS.index(kind)] += 1
        words[AT["failures"]] += "failure" in values
        words[AT["new_instances"]] += "instance" in values
        if category := values.get("category"):
            words[AT["recompiles"] + record.CATEGORIES.index(category)] += 1
            words[AT["recompiles_after_warm"]] += words[AT["warmups"]] > 0
        if phases := self._phases(now):
            values = {**values, "phase_us": phases}
        if memory := self._answers.look_at_memory(now):
            values = {**values, "allocated": memory[0], "reserved": memory[1]}
        if code := self._functions.code(values.get("id")):
            values = {**values, "code": code}
        self._store.publish(words)
        self._store.note("compilation", now, {"kind": kind, **values})

    def _phases(self, now: int) -> dict[str, int]:
        """Time of each phase since the compilation before it, in microseconds.

        PyTorch's own figures of a compilation do not tell C++ kernels and cache loads apart from
        the rest. With these, the phases of all compilations add up to those of the run.
        """
        times = self._activity.phases_at(now)
        pairs = zip(record.PHASES, times, self._accounted, strict=True)
        self._accounted = times
        return {name: (new - old) // 1000 for name, new, old in pairs if new - old >= 1000}

    def cached(self, word: int) -> None:
        self._words[word] += 1  # published with the compilation, or with the activity's end

    def cache_asked(self, now: int, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        known = {name: values.get(name) for name in ("id", "key", "reason")}
        parts = self._told_keys.packed(cache, values.get("lines") or [])
        self._store.note("cache", now, {"cache": cache, "verdict": verdict, **known, **parts})

    def fallback(self, now: int, values: Mapping[str, Any]) -> None:
        """With ``fullgraph=True`` PyTorch raises at each call that does not fit: one frame."""
        frame, _, _ = str(values.get("id") or "").rpartition("/")
        key = frame or tuple(values.get(of) for of in ("name", "file", "line"))
        if key not in self._at_limit:
            self._at_limit.add(key)
            self._book.count("fallbacks", "fallback", now, {**values, "steps": self._store.steps()})

    def cudagraph_skipped(self, now: int, values: Mapping[str, Any]) -> None:
        self._answers.count_skips()
        self._store.publish(self._words)
        if self._told_skips < _MOST_SKIPS:
            self._told_skips += 1
            self._store.note("cudagraph_skip", now, values)
