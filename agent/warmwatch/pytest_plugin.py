"""A pytest plugin: limits what a test may compile.

.. code-block:: python

    @pytest.mark.warmwatch_compiles(graphs=1, breaks=0, recompiles=0)
    def test_one_graph_does_for_all_sizes():
        ...

    def test_only_the_first_call_compiles(warmwatch_compiles):
        model = torch.compile(make())
        with warmwatch_compiles(graphs=1):
            model(x)
        with warmwatch_compiles(graphs=0):
            model(y)

pytest loads it automatically if warmwatch is installed. Without a test that uses it, it has no
cost; it never attaches the agent or imports PyTorch. Each limit is an exact number or
``(least, most)``; counts without a limit are not checked. If the test itself fails, its own error
is reported.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warmwatch.testing.compile_counter import Allowed

_MARK = "warmwatch_compiles"


class compiles:  # noqa: N801 - a context manager that is called as a function
    """Limits what the ``with`` block compiles, on any thread of this process.

    Args:
        graphs: number of graphs as Dynamo counts them, including those of recompiles.
        breaks: number of graph breaks.
        recompiles: number of recompiles of functions that were compiled before.
        fallbacks: number of functions of which some calls run eagerly: at the recompile limit, or
            with uncompiled ``flex_attention``.
        failures: number of failed compilations, including graph breaks under ``fullgraph=True``.

    Each is a number or ``(least, most)``. The attributes of the same names are the counts so far.
    """

    def __init__(self, **limits: Allowed | None) -> None:
        # loaded by the first test that uses it: other test suites pay nothing
        from warmwatch.testing import compile_counter

        checked = compile_counter.checked(limits)
        self._complaint = partial(compile_counter.complaint, limits=checked)
        self._counter = compile_counter.counter()
        self._compiled = compile_counter.Compiled()
        self._open = False

    def __enter__(self) -> compiles:
        self._counter.add(self._compiled)
        self._open = True
        return self

    def __exit__(
        self,
        raised: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        complaint = self._close()
        if raised is None and complaint is not None:
            pytest.fail(complaint)

    @property
    def graphs(self) -> int:
        return self._now("graphs")

    @property
    def breaks(self) -> int:
        return self._now("breaks")

    @property
    def recompiles(self) -> int:
        return self._now("recompiles")

    @property
    def fallbacks(self) -> int:
        return self._now("fallbacks")

    @property
    def failures(self) -> int:
        return self._now("failures")

    def __repr__(self) -> str:
        return f"<compiled {self._compiled}>"

    def _now(self, name: str) -> int:
        if self._open:
            self._counter.update()
        return self._compiled.counts[name]

    def _close(self) -> str | None:
        """Stop counting; the message if a limit was violated, else ``None``."""
        self._open = False
        self._counter.remove(self._compiled)
        return self._complaint(self._compiled)


@pytest.fixture(name=_MARK)
def _fixture() -> type[compiles]:
    """``with warmwatch_compiles(graphs=1, breaks=0, recompiles=0):`` limits what it compiles."""
    return compiles


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(graphs=None, breaks=None, recompiles=None, fallbacks=None, failures=None): fail "
        "if torch.compile exceeds or misses a limit; each is a number or (least, most)",
    )


@pytest.hookimpl(hookwrapper=True)  # supported by every version of pytest and pluggy
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    marks = list(item.iter_markers(_MARK))
    if not marks:
        yield
        return
    block = _marked(marks)
    block.__enter__()
    outcome = yield
    complaint = block._close()
    if complaint is not None and outcome.excinfo is None:
        # for a unittest.TestCase, pytest reports the test's own error instead of this one
        outcome.force_exception(pytest.fail.Exception(f"{item.name} {complaint}", pytrace=False))


def _marked(marks: list[pytest.Mark]) -> compiles:
    """The block for these marks, closest first: a mark of a test overrides those of its class."""
    if any(mark.args or not mark.kwargs for mark in marks):
        pytest.fail(f"use @pytest.mark.{_MARK}(graphs=1, breaks=0, recompiles=0)", pytrace=False)
    limits = {name: value for mark in reversed(marks) for name, value in mark.kwargs.items()}
    try:
        return compiles(**limits)
    except TypeError as error:
        invalid = str(error)
    pytest.fail(f"@pytest.mark: {invalid}", pytrace=False)
