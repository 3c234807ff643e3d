"""One set of types encodes ``/status``, decodes it, and makes its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support import golden
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.client.daemon import decoded
from warmwatch_monitor.figures.compile import Estimate
from warmwatch_monitor.figures.machine import Compiler, ExportHealth, Host, Refusal
from warmwatch_monitor.figures.rank import (
    LimitedBy,
    MemoryGrowth,
    Place,
    Slower,
    SlowerPeriod,
    WorkersMemory,
)
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.journal import Cost, GraphBreak, LongStep, Spill, TracedPlace
from warmwatch_monitor.model.machine import ObservedTraining, ProcessReading, Sample, Signs
from warmwatch_monitor.model.records import FunctionCost, VaryingDim, WorkerCompilations
from warmwatch_monitor.model.snapshot import RankView, Snapshot, Spending
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.sources.fleet import assemble
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.schema import json_schema
from warmwatch_monitor.status.schema.status import Status

PROCESS = ProcessReading(
    pid=1,
    cpu_seconds=1.5,
    resident_bytes=7,
    workers_busy=1,
    workers_idle=2,
    compilers=(Compiler(pid=2, name="cc1plus", cpu_seconds=1.0, busy=True),),
)
GPU = b.gpu(
    clocks_hertz=(("sm", 1.98e9),), throttled=(("power", True),), ecc_errors=(("corrected", 0),)
)

SEEN = ObservedTraining(
    pid=1, command="python", gpus=(GPU.uuid,), signs=Signs(workers_busy=1, workers_idle=2), polls=1
)


LEFT = Estimate(of="function", so_far_seconds=2.1, last_seconds=8.0, left_seconds=5.9, low=5.0)


SLOWER_PERIOD = SlowerPeriod(
    began_at=b.EPOCH - 40.0,
    ended_at=None,
    since_step=300,
    until_step=None,
    seconds=0.4,
    before=0.024,
    ratio=16.7,
    causes=("load 9 on 2 CPUs",),
)


LIMITED = LimitedBy(verdict="input", share=0.4, evidence=("40 % of the time waits for batches",))
OTHER = replace(b.WARM.identity, run="other")


def everything() -> Snapshot:
    """Every part of the answer that may be absent is there."""
    spent = Spending(compile_joules=9.0, compile_seconds=3.0, clean_joules=8.0, clean_steps=2.0)
    touched = replace(
        b.WARM.compile, touched_steps=(3602, 3601, 3600, *[0] * 7), precompiled=0b11111
    )
    reported = {"collective_timeout": 600.0, "collective_backend": "nccl"}
    reported |= {"baseline_steps": 20, "baseline_seconds": 0.05}
    reported |= {"flops_counted": 1e12, "flops_excluded": ("flex_attention",)}
    identity = replace(b.WARM.identity, gpus=(GPU.uuid,), host="node7", **reported)
    held = replace(touched, memory=(1, 2, 3, 4), memory_ns=b.ago(9))
    thrashing = replace(b.WARM, compile=held, identity=identity)
    counted = replace(b.RECOMPILING.compile, progress_of=1, progress_done=1, progress_total=2)
    recompiling = replace(b.RECOMPILING, compile=counted)
    cost = FunctionCost(name="forward", cost=Cost(slowest=(("triton_poi_fused_0", 1.5),)))
    return b.snapshot(
        replace(
            b.view(b.as_rank(thrashing, 0, 4), process=PROCESS, gpus=(GPU,), spending=spent),
            slower=Slower(seconds=0.4, ratio=16.7, before=0.024, causes=("load 9 on 2 CPUs",)),
            slower_periods=(SLOWER_PERIOD,),
            memory_growth=MemoryGrowth(
                of="gpu",
                bytes_per_second=4e6,
                bytes_per_step=4e5,
                since_step=300,
                grown_bytes=240_000_000,
                left_seconds=7200.0,
                recompiled=("forward",),
            ),
            workers_memory=WorkersMemory(
                workers=32, workers_bytes=41, used_bytes=60, limit_bytes=64, cgroup=True
            ),
        ),
        replace(b.view(replace(b.WARM, identity=OTHER)), limited_by=LIMITED),
        replace(_recompiling(b.as_rank(recompiling, 1, 4), cost), estimate=LEFT),
        _failed(b.view(b.as_rank(b.ended("failed"), 2, 4), alive=False)),
        gpus=(GPU, replace(GPU, uuid="GPU-1", trouble="the driver has lost it")),
        host=Host(memory_total_bytes=64, memory_available_bytes=48, cpus=16),
        observed=(SEEN,),
        exports=(ExportHealth(export="otlp", up=True, last_success=b.EPOCH),),
        left_out_uids=frozenset({1000}),
        refusals=(Refusal(path="/run/warmwatch/x", reason="torn record"),),
    )


def _failed(view: RankView) -> RankView:
    life = replace(
        view.figures.life, raised=Place(name="train_one_epoch", file="train.py", line=88)
    )
    return replace(view, figures=replace(view.figures, life=life))


def _recompiling(slot: Slot, cost: FunctionCost) -> RankView:
    return b.view(
        slot,
        compilations=(b.RECOMPILATION,),
        journal={
            "recompile": b.RECOMPILE,
            "breaks": (GraphBreak(reason="print", count=2, also=(TracedPlace(name="f"),)),),
            "varying": (VaryingDim(tensor="i", dim=0, values=(14, 16), count=1),),
            "functions": (cost,),
            "spills": (Spill(kernel="softmax_0", registers=1844, seconds=0.001),),
            "workers": WorkerCompilations(
                since_ns=(b.ago(5),), processes=4, at_once=2, compile_ns=9, name="augment"
            ),
            "long_steps": (LongStep(at_ns=5, step=9, seconds=41.0, usual_seconds=0.5),),
        },
    )


def as_prometheus_has_it(snapshot: Snapshot) -> Snapshot:
    """The same, from the series of its /metrics."""
    text = render(snapshot, None)[0].decode()
    return assemble(
        [
            Sample(name=s.name.removeprefix("warmwatch_"), labels=s.labels, value=s.value)
            for family in text_string_to_metric_families(text)
            for s in family.samples
        ],
        b.EPOCH,
    )


SCHEMAS = json_schema.definitions(Status, ref_template="#/{name}")
SNAPSHOTS = {
    **{state: b.snapshot(view) for state, view in b.in_every_state().items()},
    "everything": everything(),
    "nothing": b.snapshot(),
    "fleet": as_prometheus_has_it(everything()),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_client_decodes_exactly_what_was_encoded(name: str) -> None:
    sent = status(SNAPSHOTS[name])
    assert decoded(json_body(sent).plain) == sent


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_document_has_all_keys_that_the_schema_requires_and_no_others(name: str) -> None:
    for one in below(status(SNAPSHOTS[name])):
        schema, sent = SCHEMAS[type(one).__name__], msgspec.to_builtins(one)
        assert set(schema["required"]) <= sent.keys() <= schema["properties"].keys()


def test_the_package_has_the_schema_of_its_types(tmp_path: Path) -> None:
    shipped = Path(json_schema.__file__).with_name("status.schema.json")
    golden.check(str(shipped), json_schema.schema_file(), tmp_path)
    assert json.loads(shipped.read_text())["$defs"].keys() > SCHEMAS.keys()


def test_the_schema_has_units_and_no_defaults() -> None:
    seconds = SCHEMAS["Compile"]["properties"]["seconds"]
    assert seconds == {"type": "number", "x-unit": "s", "description": seconds["description"]}
    text = json.dumps(SCHEMAS)
    assert "default" not in {name for one in SCHEMAS.values() for name in one}
    assert "exclusiveM" not in text
    assert '"default":' not in text
    assert set(SCHEMAS["Status"]["properties"]) - set(SCHEMAS["Status"]["required"]) == {"reached"}


def test_the_fullest_answer_leaves_no_list_and_no_object_empty() -> None:
    """Without this, a key that no document above contains could be wrong."""
    found: dict[str, bool] = {}
    note_empty(status(everything()), found)
    assert sorted(name for name, filled in found.items() if not filled) == ["Skew.differences"]


def below(value: object) -> Iterator[Struct]:
    """The objects within ``value``, itself included."""
    if isinstance(value, Struct):
        yield value
        for name in value.__struct_fields__:
            yield from below(getattr(value, name))
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from below(one)


def note_empty(value: Struct, found: dict[str, bool]) -> None:
    """Which lists and objects hold something in any place in which the document has them."""
    for one in below(value):
        title = type(one).__name__
        for name, value in msgspec.structs.asdict(one).items():
            key = SCHEMAS[title]["properties"][name]
            if key.get("type") == "array" or "$ref" in json.dumps(key):
                where = f"{title}.{name}"
                found[where] = found.get(where, False) or bool(value)
