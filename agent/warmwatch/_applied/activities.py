"""Compile activity: when some is in progress, in which phase, and how far it has come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from warmwatch import record
from warmwatch._activity import Activity
from warmwatch._applied.answers import Answers
from warmwatch._applied.book import Book
from warmwatch._asked import Functions
from warmwatch._phases import is_preparation
from warmwatch.record import COMPILE_INDEX as AT

_WARM_UP_GAPS = 4  # times `quiet_ns`: a longer time without activity is not within one warm-up


class Activities:
    """What threads have begun and ended.

    Attributes:
        activity: what is being compiled right now.
    """

    def __init__(self, book: Book, answers: Answers, functions: Functions) -> None:
        self._book, self._words, self._store = book, book.words, book.store
        self._answers, self._functions = answers, functions
        self.activity = Activity(book.words)
        self._opened_episode = False  # the activity in progress reopened a warm rank
        self._background: dict[int, int] = {}  # thread -> since when it compiles in the background

    def begin(self, thread: int, event: str, now: int, of: Mapping[str, Any]) -> None:
        words = self._words
        self._functions.begun(of)
        if is_preparation(event) and not self.activity.holds(thread):
            return
        if thread in self._background:
            self.activity.begin(thread, event, now)
            return
        if not self.activity:
            self._gap(now)
            words[AT["active_since_ns"]] = now  # before the count: see ``_steps.look_closely``
            words[AT["begun"]] += 1
            self._book.on_begin()  # after the count: who is called by it finds it
            words[AT["first_begin_ns"]] = words[AT["first_begin_ns"]] or now
            self._opened_episode = not words[AT["episode_began_ns"]]
            if self._opened_episode:
                words[AT["episode_began_ns"]] = now
                words[AT["episode_began_steps"]] = self._store.steps()
            if self.activity.in_background:
                self._answers.at_end(now)  # what rose so far belongs to that compilation
            else:
                self._answers.at_begin()
            values = {"activity": words[AT["begun"]], "what": event, "steps": self._store.steps()}
            self._store.note("begin", now, {**values, **of})
        if self.activity.begin(thread, event, now):
            self._store.publish(words)

    def _gap(self, now: int) -> None:
        """The time since the last activity, as long as it may be part of one warm-up."""
        words = self._words
        gap = now - words[AT["last_end_ns"]] if words[AT["last_end_ns"]] else 0
        if words[AT["longest_gap_ns"]] < gap <= _WARM_UP_GAPS * words[AT["quiet_ns"]]:
            words[AT["longest_gap_ns"]] = gap

    def end(self, thread: int, event: str, now: int) -> None:
        changed = self.activity.end(thread, event, now)
        self._background_ended(now)
        self._changed(changed, now)

    def abandoned(self, threads: Collection[int], now: int) -> None:
        """A step was marked: ``threads`` compile no longer, and others in the background."""
        changed = self.activity.abandon(threads, now)
        self._background_ended(now)
        if self.activity:
            since = self._words[AT["active_since_ns"]]
            passed = self.activity.threads()
            changed = self.activity.step_passed(passed, now) or changed
            self._background.update({t: since for t in passed if t not in self._background})
            self._step_passed(now)
        self._changed(changed, now)

    def _step_passed(self, now: int) -> None:
        """The activity in progress goes on in the background: the training does not wait for it."""
        words = self._words
        words[AT["background_since_ns"]] = min(self._background.values())
        if self.activity.waited:
            return  # a part of it has ended within this step, which may have waited for that part
        words[AT["background"]] += 1
        words[AT["ended"]] = words[AT["begun"]]
        for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
            words[AT[name]] = 0
        if self._opened_episode:
            words[AT["episode_began_ns"]] = words[AT["episode_began_steps"]] = 0
        values = {"activity": words[AT["begun"]], "background": True}
        self._store.note("end", now, {**values, "phase_ns": self.activity.phase_ns()})

    def _background_ended(self, now: int) -> None:
        """Account for the compilations in the background that have ended."""
        over = [t for t in self._background if not self.activity.holds(t)]
        if not over:
            return
        words = self._words
        for thread in over:
            since = self._background.pop(thread)
            words[AT["background_ns"]] += max(0, now - since)
            self._store.note("background", now, {"seconds": (now - since) / 1e9})
        words[AT["background_since_ns"]] = min(self._background.values(), default=0)
        words[AT["background_ended_ns"]] = now
        self._answers.at_end(now)
        self._store.publish(words)

    def _changed(self, changed: bool, now: int) -> None:
        """Something was ended, or abandoned; ``changed``: the current phase did."""
        words = self._words
        if words[AT["active_since_ns"]] and not self.activity:
            words[AT["ended"]] = words[AT["begun"]]
            took = now - words[AT["active_since_ns"]]
            words[AT["longest_activity_ns"]] = max(words[AT["longest_activity_ns"]], took)
            for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
                words[AT[name]] = 0
            words[AT["last_end_ns"]] = now
            self._answers.at_end(now)
            phases = self.activity.phase_ns()
            self._store.note("end", now, {"activity": words[AT["begun"]], "phase_ns": phases})
        if changed:
            self._store.publish(words)

    def progress(self, of: str, done: int, total: int) -> None:
        words, under_way = self._words, done < total and bool(self.activity)
        words[AT["progress_of"]] = (1 + record.PROGRESS.index(of)) * under_way
        words[AT["progress_done"]] = done * under_way
        words[AT["progress_total"]] = total * under_way
        self._store.publish(words)
