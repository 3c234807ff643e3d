"""Throughput and MFU from the work of a step, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import astuple

from support import builders as b
from support.values import replace
from warmwatch.shared.values import DTYPES
from warmwatch_monitor.model.machine import PEAKS, Peaks, peak_flops
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.pipeline.slot_figures import worth_of
from warmwatch_monitor.status.run import rank
from warmwatch_monitor.status.words.progress import throughput

H100 = 989.4e12
DOCUMENT = Path(__file__).parents[3] / "docs/reference/throughput-and-mfu.md"


def worth(gpus: int = 1, identity: dict[str, Any] | None = None, **words: int) -> RankView:
    """A warm rank whose clean steps took 36 ms, on so many H100s."""
    readings = tuple(b.gpu(index) for index in range(gpus))
    uuids = tuple(gpu.uuid for gpu in readings)
    slot = replace(
        b.WARM,
        identity=replace(b.WARM.identity, gpus=uuids, **(identity or {})),
        compile=replace(b.WARM.compile, **words),
    )
    return b.view(slot, gpus=readings)


def test_mfu_is_six_times_parameters_times_tokens_over_the_peak_of_its_gpus() -> None:
    view = worth(2, {"parameters": 124_000_000}, tokens_per_step=16_384, samples_per_step=16)
    seconds = view.figures.steps.recent
    assert seconds is not None
    reported = to_builtins(rank(view).worth)
    by_hand = 6 * 124e6 * 16_384 / seconds / (2 * H100)
    assert reported["mfu_ratio"] == pytest.approx(by_hand)
    assert reported["tokens_per_second"] == pytest.approx(16_384 / seconds)
    assert reported["formula"] == "6 x parameters x tokens"
    assert (reported["estimated"], reported["dtype"]) == (False, "bfloat16")
    assert throughput(view).endswith(f"MFU {by_hand * 100:.2g} %")


@pytest.mark.parametrize(
    ("reported_work", "flops", "formula", "excluded"),
    [
        ({}, 2e12, "counted in the compiled graphs", ["flex_attention"]),
        ({"parameters_seen": 5}, 2e12, "counted in the compiled graphs", ["flex_attention"]),
        ({"parameters": 5}, 6 * 5 * 7, "6 x parameters x tokens", []),
        ({"flops_per_step": 3e12}, 3e12, None, []),
    ],
)
def test_counted_operations_precede_an_estimate_and_follow_declared_ones(
    reported_work: dict[str, Any], flops: float, formula: str | None, excluded: list[str]
) -> None:
    counted = {"flops_counted": 2e12, "flops_excluded": ("flex_attention",)}
    reported = to_builtins(rank(worth(1, {**counted, **reported_work}, tokens_per_step=7)).worth)
    assert (reported["flops_per_step"], reported["formula"]) == (flops, formula)
    assert reported["excluded"] == excluded


@pytest.mark.parametrize("fact", ["graph_breaks", "fallbacks", "failures"])
def test_counted_operations_exclude_the_code_that_runs_outside_of_the_graphs(fact: str) -> None:
    slot = replace(b.WARM, identity=b.WARM.identity._replace(flops_counted=2e12))
    partly_eager = replace(slot, compile=replace(slot.compile, **{fact: 1}))
    assert (worth_of(slot).excluded, worth_of(partly_eager).excluded) == ((), ("eager code",))
    uncounted = replace(partly_eager, identity=b.WARM.identity)
    assert worth_of(uncounted) == worth_of(b.WARM)


def test_each_type_counts_for_its_own_peak() -> None:
    """Half of the operations at twice the speed: three quarters of the time."""
    counted = {"flops_counted": 2e12, "flops_by_dtype": {"float8": 1e12, "bfloat16": 1e12}}
    view = worth(1, counted, tokens_per_step=7)
    reported, seconds = to_builtins(rank(view).worth), view.figures.steps.recent
    assert seconds is not None
    peak = 1 / (0.5 / 1978.9e12 + 0.5 / 989.4e12)
    assert reported["peak_flops"] == pytest.approx(peak)
    assert reported["mfu_ratio"] == pytest.approx(2e12 / seconds / peak)
    assert reported["dtypes"] == {"float8": 0.5, "bfloat16": 0.5}
    assert throughput(view).endswith("% (50 % float8, 50 % bfloat16)")


@pytest.mark.parametrize(
    "gpus",
    [
        (),
        (b.gpu(name="A GPU of next year"),),
        (b.gpu(parent="GPU-board"),),
        (b.gpu(), b.gpu(1, name=None)),
    ],
    ids=["none", "unknown", "a part of one", "one without a name"],
)
def test_gpus_of_unknown_peak_have_no_utilization(gpus: Any) -> None:
    view = replace(worth(1, {"flops_per_step": 1e12}), gpus=gpus)
    assert view.utilization is None
    assert to_builtins(rank(view).worth)["flops_per_step"] == 1e12


@pytest.mark.parametrize(
    ("name", "dtype", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756.4),
        ("NVIDIA H100 NVL", "float8", 1670.9),
        ("NVIDIA H200", "tf32", 494.7),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 311.9),
        ("NVIDIA A100-SXM4-80GB", "float8", None),
        ("NVIDIA A10", "float32", 31.2),
        ("NVIDIA A10G", "bfloat16", None),
        ("Tesla V100-SXM2-32GB", "bfloat16", None),
        ("Tesla V100-SXM2-32GB", "float16", 125.0),
        ("Tesla V100-PCIE-32GB", "float16", 112.0),
        ("NVIDIA H800 PCIe", "bfloat16", 756.4),
        ("NVIDIA B200", "bfloat16", 2250.0),
        ("NVIDIA GB200", "bfloat16", 2500.0),
        ("NVIDIA B300 SXM6 AC", "float8", 4500.0),
        ("NVIDIA GB300", "float8", 5000.0),
        ("NVIDIA H20", "float8", 296.0),
        ("NVIDIA H20-3e", "float8", 296.0),
        ("NVIDIA H200", "float8", 1978.9),
        ("NVIDIA RTX A6000", "bfloat16", 154.8),
        ("NVIDIA RTX A6000", "float8", None),
        ("NVIDIA RTX 6000 Ada Generation", "bfloat16", 364.2),
        ("Quadro RTX 6000", "float16", None),
        ("NVIDIA GeForce RTX 5090", "bfloat16", 209.5),
        ("NVIDIA GeForce RTX 5090 D", "bfloat16", None),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "bfloat16", None),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "float8", 1007.6),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "float8", None),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "float8", None),
        ("NVIDIA GB10", "bfloat16", None),
        ("NVIDIA Thor", "bfloat16", None),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bfloat16", None),
        ("NVIDIA GeForce RTX 4090 D", "bfloat16", None),
        ("NVIDIA GeForce RTX 3090 Ti", "bfloat16", None),
        ("NVIDIA A40-8Q", "bfloat16", None),
        ("Tesla T4", "float16", 65.1),
        ("NVIDIA L40S", "bfloat16", 362.1),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16", None),
    ],
)
def test_the_peaks_are_those_of_the_data_sheets(
    name: str, dtype: str, teraflops: float | None
) -> None:
    found = peak_flops(name, dtype)
    assert found == (None if teraflops is None else pytest.approx(teraflops * 1e12))


def test_there_is_a_peak_for_each_type_that_a_user_may_name() -> None:
    assert Peaks.__struct_fields__ == DTYPES
    assert all(any(astuple(peaks)) for peaks in PEAKS.values())


def test_the_document_shows_the_table_of_peaks() -> None:
    shown = {line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")}
    named: dict[tuple[float | None, ...], list[str]] = {}
    for name, peaks in PEAKS.items():
        named.setdefault(astuple(peaks), []).append(" ".join(name))
    for peaks, names in named.items():
        cells = ("" if one is None else f"{one:g}" for one in peaks)
        assert f"| {', '.join(names)} | {' | '.join(cells)} |" in shown
