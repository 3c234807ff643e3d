"""The real Triton in an eager training, compiling for a GPU that is none (support/gpu_driver.py).

Where it is installed: with the CUDA builds of PyTorch (``make test-torch``). What a launch on a GPU
adds to it is in tests/gpu/scenarios.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from support import slots
from support.trainings import result_of
from warmwatch.shared.record import CACHES, KINDS, PHASES

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="no Triton: tests/agent/hooks/test_triton_hook.py",
)

KERNELS = """
import warmwatch
from support import gpu_driver
import triton, triton.language as tl
@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2.0 * tl.load(x + at, mask=at < n), mask=at < n)
@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 0.5 * tl.load(x + at, mask=at < n), mask=at < n)
x = torch.empty(8192)
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
def steps(n, block, count):
    seen = []
    for _ in range(count):
        tuned[(1,)](x, x, n)
        plain[(1,)](x, x, n, BLOCK=block)
        train(model, o, 1)
        seen.append(warmwatch.state())
    return seen
"""
TAKES_A_FUNCTION = """
@triton.jit
def half(x):
    return x * 0.5
@triton.jit
def of(x, y, OF: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, OF(tl.load(x + at)))
"""
TRAINING = f"{KERNELS}result([steps(4096, 64, 4), steps(4112, 128, 4)])"


def test_an_eager_training_is_warm_once_its_kernels_are_compiled(records: Path) -> None:
    """A new size is tuned for with kernels that are there; a new block is another kernel."""
    states = result_of(records, TRAINING)
    assert states == [
        ["warming", "warming", "warming", "warm"],
        ["recompiling", "recompiling", "recompiling", "warm"],
    ]
    folder = slots.only(records)
    counts, where = slots.read(folder).compile, slots.read(folder).identity
    assert "triton" in where.hooks
    reported = [e for e in slots.events(folder) if e["event"] == "compilation"]
    assert [(e["kind"], e["name"], e.get("cache"), e.get("reason")) for e in reported] == [
        ("triton", "tuned", "miss", None),
        ("triton", "plain", "miss", None),
        ("triton", "tuned", None, "n: expected 4096, actual 4112"),
        ("triton", "plain", "miss", "BLOCK: expected 64, actual 128"),
    ]
    assert counts.compilations[KINDS.index("triton")] == 4
    requested = CACHES.index("triton")
    assert (counts.cache_hits[requested], counts.cache_misses[requested]) == (0, 4)
    spent = dict(zip(PHASES, counts.phase_ns, strict=True))
    assert {name for name, ns in spent.items() if ns} == {"autotune", "kernel_compile"}
    assert counts.recompiles_after_warm == 2


def test_with_a_full_cache_no_kernel_is_built_and_that_is_reported(records: Path) -> None:
    result_of(records, TRAINING, env={"WARMWATCH_DISABLE": "1"})  # where a kernel is, is in its key
    result_of(records, TRAINING)
    counts = slots.read(slots.only(records)).compile
    requested = CACHES.index("triton")
    assert (counts.cache_hits[requested], counts.cache_misses[requested]) == (4, 0)


def test_hooks_set_by_the_user_are_not_replaced(records: Path) -> None:
    """Triton fails on a kernel that takes a function where a hook is set, up to 3.6: none is."""
    body = (
        KERNELS
        + TAKES_A_FUNCTION
        + (
            "knobs = getattr(triton, 'knobs', None)\n"
            "slots = lambda: [triton.runtime.jit.JITFunction.cache_hook] if knobs is None else "
            "[knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook, "
            "knobs.compilation.listener]\n"
            "steps(4096, 64, 1)\n"
            "if triton.__version__ > '3.3': of[(1,)](x, x, half, 64)\n"  # 3.2 refuses it itself
            "result([slot is None for slot in slots()])"
        )
    )
    assert set(result_of(records, body)) == {True}


def test_kernels_in_a_process_without_dynamo_are_detected(records: Path) -> None:
    body = KERNELS.replace("model = make()", "model = None #") + (
        "import sys\ntuned[(1,)](x, x, 64)\nwarmwatch.step()\n"
        "result(['torch._dynamo' in sys.modules, warmwatch.state()])"
    )
    assert result_of(records, body, plain=True) == [False, "warming"]
    assert slots.read(slots.only(records)).compile.begun == 1
