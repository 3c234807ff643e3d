"""Steps that are not regular, and the warm-ups that end with some of them."""

from __future__ import annotations

from warmwatch import record
from warmwatch._applied.answers import Answers
from warmwatch._applied.book import Book
from warmwatch._long_steps import LeftOut
from warmwatch._pauses import Pauses
from warmwatch.record import COMPILE_INDEX as AT


class IrregularSteps:
    """The first step, those that held activity, long ones, and the one that is warm."""

    def __init__(self, book: Book, answers: Answers, pauses: Pauses) -> None:
        self._words, self._store = book.words, book.store
        self._answers, self._pauses = answers, pauses
        self._left_out = LeftOut()

    def irregular(self, now: int, before: int, seen: int) -> None:
        """An irregular step ended at ``now``; the one before it, if any, at ``before``."""
        words = self._words
        words[AT["clean_sum_ns"]] += max(0, before - words[AT["irregular_step_ns"]])
        words[AT["irregular_step_ns"]] = max(words[AT["irregular_step_ns"]], now)
        words[AT["activities_seen"]] = seen
        memory = dict(zip(record.MEMORY, self._answers.look_at_memory(now), strict=False))
        if memory and not before:
            self._store.note("first_step", now, memory)
        self._answers.look_whether_disabled()
        self._answers.runs_ahead()
        self._answers.count_skips()

    def passed(self, seen: int) -> None:
        self._words[AT["activities_seen"]] = seen
        self._store.publish(self._words)

    def held_up(self, before: int, steps: int) -> None:
        words = self._words
        words[AT["last_end_ns"]] = max(words[AT["last_end_ns"]], words[AT["background_ended_ns"]])
        if not words[AT["episode_began_ns"]]:
            words[AT["episode_began_ns"]] = before
            words[AT["episode_began_steps"]] = steps

    def touched(self, steps: int, duration: int) -> None:
        words = self._words
        words[AT["compile_step_sum_ns"]] += duration
        recent = slice(AT["touched_steps"], AT["touched_steps"] + record.TOUCHED_KEPT)
        words[recent] = [steps, *words[recent]][: record.TOUCHED_KEPT]

    def not_clean(self, steps: int, rest: int) -> None:
        words = self._words
        words[AT["clean_after"]] = max(words[AT["clean_after"]], steps)
        words[AT["longest_rest_ns"]] = max(words[AT["longest_rest_ns"]], rest)

    def first(self, now: int, duration: int, *, baseline: bool) -> None:
        words = self._words
        words[AT["first_step_ns"]] = now
        words[AT["first_duration_ns"]] = duration
        settled = words[AT["settled"]] == words[AT["begun"]] + 1
        if not baseline and not settled:  # after a baseline the warm-up begins
            words[AT["episode_began_ns"]] = words[AT["episode_began_ns"]] or now

    def long(self, now: int, values: dict[str, float]) -> None:
        left_out = self._left_out.before(now)
        if left_out is not None:
            took = self._pauses.behind(int(values["n"]) - 1)
            parts = {what: ns / 1e9 for what, ns in took.items()}
            self._store.note("long_step", now, {**values, **parts, "left_out": left_out})

    def warm(self, now: int, steps: int) -> None:
        words = self._words
        self._answers.look_at_memory(now)
        self._answers.runs_ahead()
        if words[AT["asynchronous"]]:
            return  # it may still be compiling aside
        if words[AT["active_since_ns"]] or words[AT["activities_seen"]] != words[AT["begun"]]:
            return  # something began, on another thread, after the mark that would have ended it
        self._end_warmup(now, steps, words[AT["last_end_ns"]])

    def settled(self, by: str, now: int, activities: int | None) -> None:
        """The warm-up ends without steps; ``by``: one of SETTLED_BY.

        ``activities``: how many had begun when that was judged; if more have since, it did not end.
        """
        words = self._words
        active = words[AT["active_since_ns"]]
        if activities is not None and (active or words[AT["begun"]] != activities):
            return
        self._answers.runs_ahead()
        words[AT["settled"]] = 1 + words[AT["begun"]]
        words[AT["settled_ns"]] = now
        words[AT["settled_by"]] = record.SETTLED_BY.index(by)
        self._end_warmup(now, self._store.steps(), now if active else words[AT["last_end_ns"]], by)

    def _end_warmup(self, now: int, steps: int, ended: int, by: str | None = None) -> None:
        """Enter the warm-up that is open, if any, as ended; ``by``: as of :meth:`settled`."""
        words = self._words
        began, before = words[AT["episode_began_ns"]], words[AT["episode_began_steps"]]
        words[AT["episode_began_ns"]] = words[AT["episode_began_steps"]] = 0
        how = {} if by is None else {"by": by}
        if not words[AT["begun"]]:  # eager: there was no warm-up that could have ended
            self._answers.look_whether_disabled()
            self._store.publish(words)
            self._store.note("eager", now, {"at": self._store.steps(), **how}, essential=True)
            return
        if not began:  # it had ended before, and nothing has compiled since
            self._store.publish(words)
            return
        words[AT["warmups"]] += 1
        # all that began may be in the background: then there was nothing to wait for
        warmup = [began, ended or began, now, steps - before]
        for name in ("last_warmup", "first_warmup")[: 2 if words[AT["warmups"]] == 1 else 1]:
            words[AT[name] : AT[name] + len(warmup)] = warmup
        self._store.publish(words)
        span = {"began": began, "ended": ended, "steps": steps - before}
        self._store.note("warm", now, {"at": self._store.steps(), **span, **how}, essential=True)
