"""Changes of functions, tried in a process that has collected all tests: loading takes longest.

A function's code is replaced in a fork, so every importer calls the changed function. What is
noticed so is noticed. What is not may only have come too late (a default, what the import does), or
have failed to be put in place: it is tried again in a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType

import pytest

from mutants.changes import Change


class InPlace:
    """Tells ``writing`` the positions in ``made`` of what none of its ``about`` failed of."""

    def __init__(
        self,
        module: str,
        made: Sequence[Change],
        about: Callable[[Change], Sequence[str]],
        limited: Callable[[Sequence[str]], None],
        workers: int,
        writing: int,
    ) -> None:
        self._module, self._made, self._about, self._limited = module, made, about, limited
        self._workers, self._writing = workers, writing

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        items = {item.nodeid: item for item in session.items}

        def begin(position: int) -> int:
            return child if (child := os.fork()) else self._try(position, session, items)

        left = list(range(len(self._made)))
        if self._passes_unchanged(session):
            left = list(unnoticed(left, self._workers, begin))
        with os.fdopen(self._writing, "w") as pipe:
            json.dump(left, pipe)
        os._exit(0)

    def _passes_unchanged(self, session: pytest.Session) -> bool:
        """Whether tests fail because of the changes, and not because they run here, with limits."""
        if child := os.fork():
            return not os.waitpid(child, 0)[1]
        status = 1
        try:
            self._limited([item.nodeid for item in session.items])
            status = _run(session, session.items)
        finally:
            os._exit(status)

    def _try(self, position: int, session: pytest.Session, items: dict[str, pytest.Item]) -> int:
        status, change = 0, self._made[position]
        try:
            about = self._about(change)
            if change.function and _put(self._module, change):
                self._limited(about)
                status = _run(session, [items[test] for test in about])
        finally:
            os._exit(status)


def unnoticed(made: Sequence[int], workers: int, begin: Callable[[int], int]) -> Iterator[int]:
    """Those whose process, which ``begin`` makes, ends with 0."""
    running: dict[int, int] = {}
    for one in made:
        if len(running) == workers:
            yield from _ended(running)
        running[begin(one)] = one
    while running:
        yield from _ended(running)


def _ended(running: dict[int, int]) -> Iterator[int]:
    child, status = os.wait()
    ended = running.pop(child)
    if not status:
        yield ended


def _run(session: pytest.Session, items: Sequence[pytest.Item]) -> int:
    for item, following in zip(items, (*items[1:], None), strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _put(module: str, change: Change) -> bool:
    """Whether the code of the function is another now."""
    code = next(_codes(compile(change.tree(), module, "exec"), change.function))
    functions = [
        one
        for one in gc.get_objects()
        if isinstance(one, FunctionType)
        and one.__module__ == module
        and (one.__code__.co_firstlineno, one.__name__) == (change.function, code.co_name)
    ]
    for function in functions:
        function.__code__ = code
    return bool(functions)


def _codes(code: CodeType, line: int) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_firstlineno == line and not one.co_name.startswith("<"):
                yield one
            yield from _codes(one, line)
