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

pytest finds it by itself where warmwatch is installed; it costs nothing where no test uses it, and
neither attaches the agent nor imports PyTorch. Each number is exact, or ``(least, most)``; what is
not named may be anything. A test that fails by itself fails with its own error.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warmwatch.testing.compile_counter import Counting
    from warmwatch.testing.compile_limits import Allowed

_MARK = "warmwatch_compiles"


class compiles:  # noqa: N801 - a context manager that is called as a function
    """What is compiled in the ``with`` block, in this process on any thread.

    Args:
        graphs: as Dynamo counts them, those of recompiles among them. breaks: graph breaks.
        recompiles: of a function that was compiled before. fallbacks: functions that hit the
            recompile limit: new inputs of them run eagerly. failures: compilations that failed, by
            a graph break under ``fullgraph=True`` too. Each a number, or ``(least, most)``.

    The attributes of the same names say how many there were so far.
    """

    def __init__(self, **wanted: Allowed | None) -> None:
        from warmwatch.testing import compile_counter, compile_limits

        self._may = compile_limits.allowed(wanted)
        self._counting: Counting = compile_counter.Counting()
        self._open = False

    def __enter__(self) -> compiles:
        self._counting.begin()
        self._open = True
        return self

    def __exit__(
        self,
        raised: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        words = self._close()
        if raised is None and words is not None:
            pytest.fail(words)

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
        return f"<compiled {self._counting.compiled}>"

    def _now(self, name: str) -> int:
        if self._open:
            self._counting.look()
        count: int = getattr(self._counting.compiled, name)
        return count

    def _close(self) -> str | None:
        """End counting; what is otherwise than it may be."""
        from warmwatch.testing import compile_limits

        self._open = False
        self._counting.end()
        return compile_limits.complaint(self._counting.compiled, self._may)


@pytest.fixture(name=_MARK)
def _fixture() -> type[compiles]:
    """``with warmwatch_compiles(graphs=1, breaks=0, recompiles=0):`` what a block may compile."""
    return compiles


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(graphs=None, breaks=None, recompiles=None, fallbacks=None, failures=None): fail "
        "where the test compiles otherwise, by torch.compile; each a number, or (least, most)",
    )


@pytest.hookimpl(hookwrapper=True)  # the form that every pytest and pluggy knows
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    marks = list(item.iter_markers(_MARK))
    if not marks:
        yield
        return
    block = _marked(marks)
    block.__enter__()
    outcome = yield
    words = block._close()
    if words is not None and outcome.excinfo is None:
        # of a unittest.TestCase, pytest itself has its own error go before ours
        outcome.force_exception(pytest.fail.Exception(f"{item.name} {words}", pytrace=False))


def _marked(marks: list[pytest.Mark]) -> compiles:
    """The block that they ask for, the closest first: each number is of the closest that names it.

    So a class says what holds for all its tests, and a test what is otherwise with it.
    """
    if any(mark.args or not mark.kwargs for mark in marks):
        pytest.fail(f"say @pytest.mark.{_MARK}(graphs=1, breaks=0, recompiles=0)", pytrace=False)
    wanted = {name: value for mark in reversed(marks) for name, value in mark.kwargs.items()}
    try:
        return compiles(**wanted)
    except TypeError as error:
        wrong = str(error)
    pytest.fail(f"@pytest.mark: {wrong}", pytrace=False)
