"""Each cell of the matrix: the cause is the value that changed, and the remedy cures.

The remedy is applied as a user would read it. Then PyTorch must count no graph after the warm-up
that the remedy allows, and no more graph breaks than before, with the results of eager code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from support.recompile_matrix import MODULE, SOURCES, Cell, cells
from support.recompiles import counted, recording
from support.torch_versions import TORCH, VERSION

torch = pytest.importorskip("torch")

Calls = Iterator[tuple[Any, bool]]  # the result of each call, and whether the warm-up is over
_LESS = ("2.6", "2.8", "2.11")  # guards of these versions name less


@pytest.fixture(autouse=True)
def _without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch flushes the caches of the CPU to measure each entry's guards, half of the time."""
    guards = torch._dynamo.guards
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *_: 0.0, raising=False)


def compiled(cell: Cell, dynamic: bool | None) -> Callable[[Any], Any]:
    options = {"dynamic": dynamic, "fullgraph": cell.value.fullgraph}
    return partial(torch.compile, backend="eager", **options)


def in_turn(cell: Cell, values: Sequence[str], warm_up: int, wrap: Any = None) -> Calls:
    names = cell.program(wrap or compiled(cell, cell.value.dynamic))
    for number, value in enumerate(values):
        yield cell.called(names, value), number >= warm_up


def two_in_the_warm_up(cell: Cell) -> Calls:
    return in_turn(cell, cell.value.values, 2)


def with_the_setting(cell: Cell) -> Calls:
    if not hasattr(torch._dynamo.config, "allow_unspec_int_on_nn_module"):
        pytest.skip("2.6 has no such setting")
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        yield from without_static_shapes(cell)


def as_an_argument(cell: Cell) -> Calls:
    return without_static_shapes(Cell(SOURCES["argument"], cell.value, cell.label))


def without_static_shapes(cell: Cell) -> Calls:
    return in_turn(cell, cell.value.values, 2, compiled(cell, None))


def sizes_that_differ_first(cell: Cell) -> Calls:
    first, *others = cell.value.values
    return in_turn(cell, [*others, first], 1)


def each_in_the_warm_up(cell: Cell) -> Calls:
    return in_turn(cell, cell.value.values * 2, len(cell.value.values))


def one_function_for_each(cell: Cell) -> Calls:
    wrap = compiled(cell, cell.value.dynamic)
    programs = {value: cell.program(wrap) for value in cell.value.values}
    for again in (False, True):
        for value, names in programs.items():
            yield cell.called(names, value), again


def changed(text: str) -> Callable[[Cell], Calls]:
    """Each value within ``text``."""
    return lambda cell: in_turn(cell, [text.format(value) for value in cell.value.values], 1)


CURES: dict[str, Callable[[Cell], Calls]] = {
    "two_in_the_warm_up": two_in_the_warm_up,
    "with_the_setting": with_the_setting,
    "as_an_argument": as_an_argument,
    "without_static_shapes": without_static_shapes,
    "sizes_that_differ_first": sizes_that_differ_first,
    "each_in_the_warm_up": each_in_the_warm_up,
    "one_function_for_each": one_function_for_each,
    "as_a_tensor": changed("torch.tensor({})"),
    "with_a_mark": changed("marked({})"),
    "cast": changed("({}).float()"),
    "contiguous": changed("({}).contiguous()"),
    "resolved": changed("({}).resolve_conj()"),
}


# every third cell is long: its neighbours in the row and the column are not
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=cell.label, marks=[pytest.mark.long] * (number % 3 == 1))
        for number, cell in enumerate(cells())
    ],
)
def test_the_value_that_changed_is_named_and_the_remedy_cures(cell: Cell) -> None:
    if cell.source.place == MODULE and "integer" in cell.label and not TORCH.guards_integers:
        pytest.skip("it is dynamic there")
    with recording() as listener:
        listener.dynamic = cell.value.dynamic
        before = counted()
        results = [result for result, _ in in_turn(cell, cell.value.values, 1)]
        graphs, breaks = counted()
    if graphs - before[0] == 1 and VERSION in _LESS and cell.label.endswith(", default"):
        pytest.skip("it has no guard on a default")
    assert graphs - before[0] > 1, "nothing recompiles"
    eager = [result for result, _ in in_turn(cell, cell.value.values, 1, wrap=lambda made: made)]
    assert all(map(torch.equal, results, eager))
    (category, words, _), *_ = listener.said
    assert category == cell.value.category
    if VERSION not in _LESS:
        assert cell.name in str(words)
        expected = cell.value.words
        if "__class__" in cell.name and expected.startswith("went from"):
            expected = "is no longer"  # an attribute of a class is not read
        assert expected in str(words).replace(f" of {cell.name})", "")
        assert cell.remedy in str(listener.said[-1][2])
    if cell.cure is None or (VERSION == "2.6" and cell.label == "batch, list of modules"):
        return  # 2.6 reads no mark there
    late, start = 0, counted()
    graphs = start[0]
    for _, is_warm in CURES[cell.cure](cell):
        now = counted()
        late += (now[0] - graphs) * is_warm
        graphs = now[0]
    assert late == 0
    assert counted()[1] - start[1] <= breaks - before[1]
