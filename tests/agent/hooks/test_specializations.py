"""The reason why a Triton kernel is compiled or tuned again: only names, dtypes and numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warmwatch.hooks.compilers.triton_kernels import Memory, of_kernel, of_tuning
from warmwatch.shared.advice import advice
from warmwatch.shared.reasons import plain

NAMES = ("x", "n", "BLOCK", "MODE")


class Kernel:
    arg_names = NAMES


def compiled(
    x: Any = "*fp32",
    n: Any = "i32",
    block: Any = 128,
    mode: Any = None,
    aligned: tuple[int, ...] = (0, 1),
    **options: Any,
) -> Any:
    """What it is compiled for, as Triton from 3.3 on has it: constants and attributes by place."""
    source = SimpleNamespace(
        fn=Kernel(),
        signature={"x": x, "n": n, "BLOCK": "constexpr", "MODE": "constexpr"},
        constants={(2,): block, (3,): mode},
        attrs={(place,): [["tt.divisibility", 16]] for place in aligned},
    )
    return of_kernel(source, {"num_warps": 4, "num_stages": 2, **options})


def again(*made: Any) -> tuple[str, str] | None:
    memory, kernel = Memory(), Kernel()
    for one in made[:-1]:
        memory.changed(kernel, one)
    return memory.changed(kernel, made[-1])


CHANGES = {
    "constant": (compiled(block=256), "BLOCK: expected 128, actual 256", "shape"),
    "type": (compiled(x="*fp16"), "x: expected *fp32, actual *fp16", "dtype"),
    "size": (compiled(n="i64"), "n: expected i32, actual i64", "shape"),
    "flag": (compiled(mode=True), "MODE: expected None, actual True", "python_value"),
    "text": (compiled(mode="a patient"), "MODE: expected None, actual '...'", "python_value"),
    "function": (compiled(mode=print), "MODE: expected None, actual '...'", "python_value"),
    "option": (compiled(num_warps=8), "num_warps: expected 4, actual 8", "python_value"),
    "alignment": (
        compiled(aligned=(0,)),
        "alignment of n: expected a multiple of 16, actual absent",
        "shape",
    ),
    "several": (
        compiled(x="*fp16", block=256),
        "x: expected *fp32, actual *fp16\nBLOCK: expected 128, actual 256",
        "dtype",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_recompiled_kernel_reports_what_changed(change: str) -> None:
    now, reason, category = CHANGES[change]
    assert again(compiled(), now) == (reason, category)
    assert advice(category, "triton")


def test_a_kernel_is_compared_with_its_most_similar_earlier_compilation() -> None:
    """A kernel of two dtypes gets a new block size for one of them."""
    half = {"x": "*fp16"}
    found = again(compiled(block=64), compiled(**half), compiled(**half, block=256))
    assert found == ("BLOCK: expected 128, actual 256", "shape")


def test_constants_and_attributes_of_triton_3_2_are_read() -> None:
    def source(block: int, divisible: tuple[int, ...]) -> Any:
        return SimpleNamespace(
            fn=Kernel(),
            signature={"x": "*fp32", "n": "i32"},
            constants={"BLOCK": block},
            attrs=SimpleNamespace(arg_properties={"tt.divisibility": divisible}),
        )

    kernels = [
        of_kernel(source(*made), None) for made in ((128, (0, 1)), (256, (0, 1)), (256, (0,)))
    ]
    assert again(*kernels[:2]) == ("BLOCK: expected 128, actual 256", "shape")
    assert again(*kernels[1:]) == CHANGES["alignment"][1:]


def test_a_tuning_is_described_by_its_key_and_the_dtypes() -> None:
    class Tensor:
        dtype = "torch.bfloat16"

        def __repr__(self) -> str:
            raise AssertionError("the values of a tensor were read")

    def key(n: int) -> Any:
        return of_tuning(["n", "x", "absent"], {"n": n, "x": Tensor(), "name": "mine"}, NAMES)

    assert {name: entry.shown for name, entry in key(64).items()} == {
        "n": "64",
        "x": "'...'",
        "dtype of x": "bfloat16",
    }
    found = again(of_tuning(["n"], {"n": 64}, NAMES), of_tuning(["n"], {"n": 48}, NAMES))
    assert found == ("n: expected 64, actual 48", "shape")
    assert plain(*found), "its words are in test_plain_reasons.py"
