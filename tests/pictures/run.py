"""The run whose report is in the docs' picture: two ranks, one graph break, a recompile."""

from __future__ import annotations

from support import builders as b
from support import reported as a
from support.builders import EPOCH
from support.values import replace
from warmwatch_monitor.model.run_summary import Samples

_ANSWERS = {
    "gpus": ["GPU-0"],
    "energy": {
        "compile_joules": 14_400.0,
        "covered_seconds": 122.0,
        "joules_per_clean_step": 24.9,
    },
    "compile.seconds": 137.0,
    "compile.compilations": 5,
    "compile.recompiles": 1,
    "compile.graph_breaks": 1,
    "compile.breaks": [{"reason": "Unsupported Tensor.item() call", "count": 1}],
    "pauses.data_seconds": 16.0,
    "pauses.checkpoint_seconds": 6.0,
    "pauses.evaluation_seconds": 9.0,
}
_KERNELS = (
    ("triton_tem_fused_mm_gelu_4", 6.2),
    ("triton_per_fused_layer_norm_1", 3.9),
    ("triton_poi_fused_add_7", 1.6),
)
_RESUMED = replace(
    a.FORWARD,
    id="1/0",
    ended=EPOCH - 141,
    name="torch_dynamo_resume_in_forward_at_47",
    seconds=9.0,
    phase_seconds={"dynamo": 1.0, "inductor": 6.0, "kernel_compile": 2.0},
)


_PHASES = {
    **dict.fromkeys(range(50, 56), "dynamo"),
    **dict.fromkeys(range(56, 58), "aot_autograd"),
    **dict.fromkeys(range(58, 151), "inductor"),
    **dict.fromkeys(range(151, 170), "kernel_compile"),
    236: "dynamo",
    **dict.fromkeys(range(237, 250), "inductor"),
}
_SECONDS = range(300)


def _samples(**columns: tuple[float | str | None, ...]) -> Samples:
    epochs = tuple(EPOCH - 300 + at for at in _SECONDS)
    return Samples(seconds=1.0, epochs=epochs, columns=columns)


def _power() -> Samples:
    """It waits at 118 W while it compiles."""
    waits = {*range(50), *_PHASES}
    return _samples(
        power_watts=tuple(118.0 if at in waits else 684.0 + at * 7 % 13 for at in _SECONDS)
    )


def _steps() -> Samples:
    """36 ms a step from the end of the warm-up."""
    return _samples(
        step_seconds=tuple(None if at < 170 else 0.036 + at * 7 % 13 / 2e4 for at in _SECONDS),
        phase=tuple(_PHASES.get(at) for at in _SECONDS),
    )


RUN = a.run_summary(
    *(b.view(b.as_rank(b.WARM, rank, 2)) for rank in range(2)),
    compiled=(
        replace(a.FORWARD, slowest_kernels=_KERNELS),
        _RESUMED,
        a.BACKWARD,
        a.AGAIN,
        a.AGAIN_BACK,
    ),
    answers=_ANSWERS,
    samples=_steps(),
    gpu_samples={"GPU-0": _power()},
    what=replace(
        a.H100, world_size=2, gpus=a.H100.gpus * 2, caches={"inductor": "cold", "triton": "cold"}
    ),
)
