"""The models behind /docs are what /status answers, key by key, so neither can drift."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

from support import builders as b
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.fleet import assemble
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model import (
    Compiler,
    Cost,
    Estimate,
    ExportHealth,
    FunctionCost,
    GraphBreak,
    HostReading,
    LongStep,
    ObservedTraining,
    ProcessReading,
    RankView,
    Refusal,
    Sample,
    Signs,
    Slower,
    SlowerPeriod,
    Snapshot,
    Spending,
    VaryingDim,
)
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.schema import Status

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
    pid=1, command="python", gpus=(GPU.uuid,), signs=Signs(workers_busy=1, workers_idle=2), looks=1
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


def everything() -> Snapshot:
    """Every part of the answer that may be absent is there."""
    spent = Spending(compile_joules=9.0, compile_seconds=3.0, clean_joules=8.0, clean_steps=2.0)
    touched = replace(
        b.WARM.compile, touched_steps=(3602, 3601, 3600, *[0] * 7), precompiled=0b11111
    )
    told = {"collective_timeout": 600.0, "collective_backend": "nccl"}
    told |= {"baseline_steps": 20, "baseline_seconds": 0.05}
    identity = replace(b.WARM.identity, gpus=(GPU.uuid,), host="node7", **told)
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
        ),
        replace(_recompiling(b.as_rank(recompiling, 1, 4), cost), estimate=LEFT),
        b.view(b.as_rank(b.ended("failed"), 2, 4), alive=False),
        gpus=(GPU, replace(GPU, uuid="GPU-1", trouble="the driver has lost it")),
        host=HostReading(memory_total_bytes=64, memory_available_bytes=48, cpus=16),
        observed=(SEEN,),
        exports=(ExportHealth(export="otlp", up=True, last_success=b.EPOCH),),
        left_out_uids=frozenset({1000}),
        refusals=(Refusal(path="/run/warmwatch/x", reason="torn record"),),
    )


def _recompiling(slot: Slot, cost: FunctionCost) -> RankView:
    return b.view(
        slot,
        compilations=(b.RECOMPILATION,),
        journal={
            "recompile": b.RECOMPILE,
            "breaks": (GraphBreak(reason="print", count=2),),
            "varying": (VaryingDim(tensor="i", dim=0, values=(14, 16), count=1),),
            "functions": (cost,),
            "long_steps": (LongStep(at_ns=5, step=9, seconds=41.0, usual_seconds=0.5),),
        },
    )


def as_prometheus_has_it(snapshot: Snapshot) -> Snapshot:
    """The same, told by the series of its /metrics."""
    text = render(snapshot, None)[0].decode()
    return assemble(
        [
            Sample(name=s.name.removeprefix("warmwatch_"), labels=s.labels, value=s.value)
            for family in text_string_to_metric_families(text)
            for s in family.samples
        ],
        b.EPOCH,
    )


SNAPSHOTS = {
    **{state: b.snapshot(view) for state, view in b.in_every_state().items()},
    "everything": everything(),
    "nothing": b.snapshot(),
    "fleet": as_prometheus_has_it(everything()),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_real_answer_has_the_fields_of_the_model_and_no_others(name: str) -> None:
    answer = json.loads(json.dumps(status(SNAPSHOTS[name])))
    model = Status.model_validate(answer)  # no field is missing, null only where that may be
    assert json.loads(model.model_dump_json(exclude_unset=True)) == answer


def test_every_field_of_the_model_says_what_it_is() -> None:
    schema = Status.model_json_schema()
    models = {Status.__name__: schema, **schema["$defs"]}
    fields = {
        f"{model}.{name}": field
        for model, told in models.items()
        for name, field in told.get("properties", {}).items()
    }
    assert len(fields) > 200
    assert not [name for name, field in fields.items() if not field.get("description")]


def test_the_fullest_answer_leaves_no_list_and_no_object_of_the_model_out() -> None:
    """Else a field could drift that no answer above holds."""
    assert list(_absent(Status.model_validate(status(everything())))) == ["skew.differences"]


def _absent(model: BaseModel, where: str = "") -> list[str]:
    """Lists that are empty and objects that are null in every place in which the model has them."""
    found: dict[str, bool] = {}
    _look(model, found)
    return sorted(name for name, seen in found.items() if not seen)


def _look(model: BaseModel, found: dict[str, bool]) -> None:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        nested = value if isinstance(value, list) else [value]
        if "list" in str(field.annotation) or "views" in str(field.annotation):
            key = f"{type(model).__name__.lower()}.{name}"
            found[key] = found.get(key, False) or bool(value)
        for one in nested:
            if isinstance(one, BaseModel):
                _look(one, found)
