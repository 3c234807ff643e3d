"""The remedies of docs/how-to/remedies: compilations before and after each, counted by PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.torch_versions import TORCH
from warmwatch.shared import advice
from warmwatch.testing import compile_counter
from warmwatch.testing.compile_counter import Cause, Compiled

pytestmark = pytest.mark.training

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "remedies"
UNROLLED = "unrolled-loop"
WARM = "# the run is warm\n"  # what compiles before this line belongs to the warm-up
COUNTED = {"Recompiles": "recompiles", "Graph breaks": "breaks", "Fallbacks": "fallbacks"}


@dataclass
class Remedy:
    """One page."""

    name: str
    category: str | None
    counted: str
    before: int
    after: int
    codes: tuple[str, str]


def remedies() -> list[Remedy]:
    found = []
    for page in sorted({*PAGES.glob("*.md")} - {PAGES / "README.md"}):
        text = page.read_text()
        named = re.search(r"^Category: `(\w+)`", text, re.MULTILINE)
        counts = re.search(
            r"(Recompiles|Graph breaks|Fallbacks):\s+(\d+)\s+before,\s+(\d+)\s+after", text
        )
        assert counts is not None, page
        before, after = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        category = named[1] if named else None
        numbers = int(counts[2]), int(counts[3])
        found.append(Remedy(page.stem, category, COUNTED[counts[1]], *numbers, (before, after)))
    return found


@pytest.fixture
def torch() -> Iterator[Any]:
    """PyTorch as it is at its start. The examples need no kernels: Dynamo alone decides."""
    import torch

    compile_ = torch.compile
    torch.compile = lambda *given, **options: compile_(*given, **{**options, "backend": "eager"})
    torch._dynamo.reset()
    yield torch
    torch.compile = compile_
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()


def run(code: str, counted: str, torch: Any, folder: Path) -> tuple[int, list[Cause]]:
    """How often the code recompiles, breaks or falls back once it is warm; why it recompiles."""
    names: dict[str, Any] = {}
    code = code.replace('"cuda"', '"meta"')  # another device, on a machine with one
    script = folder / f"{len([*folder.iterdir()])}.py"  # PyTorch 2.6 reads what it compiles there
    script.write_text(code)
    warm_up, _, rest = code.rpartition(WARM)
    torch._dynamo.reset()
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(0)
    compiled, counter = Compiled(), compile_counter.counter()
    counter.add(compiled)
    try:
        exec(compile(warm_up, script, "exec"), names)
        counter.update()
        before = compiled.counts[counted]
        rest = "\n" * code.removesuffix(rest).count("\n") + rest
        exec(compile(rest, script, "exec"), names)
    finally:
        counter.remove(compiled)
    assert compiled.troubles == []
    return compiled.counts[counted] - before, compiled.seen["recompiles"]


# the others are long: the matrix of recompiles applies the same remedies
SHORT = ("size-changes", "number-changes", "graph-break", "new-object", "recompile-limit")


@pytest.mark.parametrize(
    "remedy",
    [pytest.param(one, marks=[pytest.mark.long] * (one.name not in SHORT)) for one in remedies()],
    ids=lambda remedy: remedy.name,
)
def test_a_remedy_removes_the_compilations_that_its_page_counts(
    remedy: Remedy, torch: Any, tmp_path: Path
) -> None:
    before, causes = run(remedy.codes[0], remedy.counted, torch, tmp_path)
    after, _ = run(remedy.codes[1], remedy.counted, torch, tmp_path)
    assert (before, after) == (remedy.before, remedy.after)
    category = TORCH.unrolled_size if remedy.name == UNROLLED else remedy.category
    assert category is None or {cause.category for cause in causes} == {category}


KEEPS: dict[str, tuple[str, bool]] = {
    "slice": ("x[:4]", False),
    "view": ("x.view(8, 2, 4)", False),
    "reshape": ("x.reshape(8, 8)", False),
    "unsqueeze": ("x.unsqueeze(1)", False),
    "detach": ("x.detach()", False),
    "clone": ("x.clone()", False),
    "arithmetic": ("x + 0", False),
    "another dtype": ("x.to(torch.float64)", False),
    "half": ("x.half()", False),
    "nothing to change": ("x.to('cpu').float().contiguous()", True),
    "collated": ("torch.utils.data.default_collate([x] * 8)", False),
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_keeps_the_mark_of_a_tensor(name: str, torch: Any) -> None:
    """The table of the page: PyTorch compiles once if the tensor that is passed has the mark."""
    expression, kept = KEEPS[name]
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    function = torch._dynamo.optimize(backend)(lambda x: x.sin())
    x = torch.ones(8, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    passed = eval(expression, {"torch": torch, "x": x})
    function(passed)
    function(passed[:3].clone())
    assert (len(graphs) == 1) is kept


# Applied in tests/agent/hooks/test_cures.py, or worded in test_causes.py there or in
# tests/agent/shared/test_advice.py, tests/process/test_remedies.py or
# tests/agent/hooks/test_recompile_matrix.py. The table of guard kinds has a remedy for each object
# that PyTorch's guards name; the general one is for later texts.
_SHOWN_BY_TESTS = {
    *(advice._OF_RELATION, advice._OF_INTEGER, advice._OF_GLOBAL_INTEGER, advice._OF_RANGE),
    *(advice._OF_CONSTANT_INTEGER, advice._OF_NUMBER_CONDITION, advice._OF_NUMBER_OF_ONE),
    advice._OF_SLICE,
    *(
        advice._OF_OPTIMIZER,
        advice._OF_LEARNING_RATE,
        advice._OF_LAST_BATCH,
        advice._OF_STATIC_NUMBER,
        advice._OF_CONSTANT_FLOAT,
        advice._OF_FLOAT_OF_FUNCTION,
        advice.ADVICE["new_instance"],
    ),
    *(advice.ADVICE["object_identity"], advice._OF_STATIC, advice._OF_SIZE_AT_BREAK),
    *(advice._OF_STATIC_PARAMETER, advice._OF_ARGUMENT, advice._OF_STATIC_ARGUMENT),
    *(advice._OF_EQUAL, advice._OF_MODULE_DTYPE, advice._OF_KIND),
    *(advice._OF_STATIC_INTEGER, advice._OF_STATIC_GLOBAL_INTEGER, advice.ADVICE["python_value"]),
}


@pytest.mark.long
def test_the_examples_lead_to_every_remedy_of_a_recompile(torch: Any, tmp_path: Path) -> None:
    shown = {
        advice.advice(cause.category, reason=cause.reason, dynamic=cause.dynamic) or ""
        for remedy in remedies()
        for cause in run(remedy.codes[0], remedy.counted, torch, tmp_path)[1]
    }
    sentences = {
        sentence
        for name, sentence in vars(advice).items()
        if name.startswith("_OF_") and isinstance(sentence, str)
    }
    # which sizes a kernel is for depends on the CPU: tests/agent/shared/test_advice.py
    unseen = {advice._OF_KERNEL, *_SHOWN_BY_TESTS}
    if TORCH.unrolled_size != "shape":
        unseen.add(advice._OF_CONSTANT)
    every = {*advice.ADVICE.values(), *sentences}
    missing = {one for one in every if not any(one in words for words in shown)}
    assert missing - _SHOWN_BY_TESTS == unseen - _SHOWN_BY_TESTS
