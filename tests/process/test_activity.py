"""``with warmwatch.activity(name)``: what the user brackets, in a real training."""

from __future__ import annotations

from pathlib import Path

from support import slots
from support.trainings import result_of
from warmwatch.shared.record import KINDS, PHASES

CUSTOM = KINDS.index("custom")

STEPS = """
import warmwatch
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
states = []
def step(count=1):
    for _ in range(count): train(model, o, 1)
    states.append(warmwatch.state())
@warmwatch.activity("decorated")
def build(raises=False):
    states.append(warmwatch.is_compiling())
    if raises: raise KeyError("the user's own")
    return 7
"""


def test_the_block_counts_as_compile_activity(records: Path) -> None:
    """Nested, as a decorator, and with an exception, which passes."""
    body = STEPS + (
        "with warmwatch.activity('my_dsl'):\n"
        "    with warmwatch.activity('inner'): states.append(warmwatch.state())\n"
        "step(); step(3)\n"
        "states.append(build())\n"
        "try: build(raises=True)\n"
        "except KeyError as error: states.append(str(error))\n"
        "step(); step(3)\n"
        "result(states)"
    )
    assert result_of(records, body) == [
        *["compiling", "warming", "warm"],
        *[True, 7, True, '"the user\'s own"'],
        *["recompiling", "warm"],
    ]
    folder = slots.only(records)
    counts = slots.read(folder).compile
    reported = [e for e in slots.events(folder) if e["event"] == "compilation"]
    assert [(e["kind"], e["name"], e.get("failure")) for e in reported] == [
        ("custom", "inner", None),
        ("custom", "my_dsl", None),
        ("custom", "decorated", None),
        ("custom", "decorated", "KeyError"),
    ]
    assert (counts.compilations[CUSTOM], counts.begun, counts.ended) == (4, 3, 3)
    assert {p for p, ns in zip(PHASES, counts.phase_ns, strict=True) if ns} == {"other"}
    began = next(e for e in slots.events(folder) if e["event"] == "begin")
    assert (began["kind"], began["name"]) == ("custom", "my_dsl")


COMPILED = """
import warmwatch
from torch._dynamo.utils import counters
@warmwatch.activity("decorated")
def half(x): return x / 2
def forward(x):
    with warmwatch.activity("inside"):
        x = x * 2
    return half(x) + 1
compiled = torch.compile(forward, backend="eager", fullgraph=True)
values = [float(compiled(torch.ones(1))) for _ in range(3)]
result([values, counters["stats"]["unique_graphs"], dict(counters["graph_break"])])
"""


def test_activity_inside_a_compiled_function_is_not_recorded(records: Path) -> None:
    """One graph, no break, no recompile and no output, with the agent and without it."""
    assert result_of(records, COMPILED, attach=False) == [[2.0] * 3, 1, {}]
    assert result_of(records, COMPILED) == [[2.0] * 3, 1, {}]
    assert slots.read(slots.only(records)).compile.compilations[CUSTOM] == 0


def test_any_name_is_accepted_and_every_activity_ends(records: Path) -> None:
    """One that cannot be shown, one that is no text; detached in the middle of it."""
    body = STEPS + (
        "for name in ('a\\nb', 7, 'x' * 999):\n"
        "    with warmwatch.activity(name): pass\n"
        "with warmwatch.activity('left'): warmwatch.detach()\n"
        "result(states)"
    )
    result_of(records, body)
    events = slots.events(slots.only(records))
    names = [e["name"] for e in events if e["event"] == "compilation"]
    assert names == ["a_b", "int", "x" * 200]
