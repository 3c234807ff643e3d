"""Inefficient compiled code, from journal lines that were recorded on an H100."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from support import builders as b
from support.documents import status
from support.records import live_slot, write_record
from warmwatch.shared.values import EXPORT, STRICT_EXPORT
from warmwatch_monitor.commands.report.remedies import of_break
from warmwatch_monitor.model.journal import Compilation, Fallback, GraphBreak, Spill, TracedPlace
from warmwatch_monitor.model.records import CacheBypass, VaryingDim
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal
from warmwatch_monitor.status.schema.rank import Break, Inefficiency
from warmwatch_monitor.status.words.conditions import inefficiencies
from warmwatch_monitor.status.words.evidence import evidence

# PyTorch 2.11, mode="reduce-overhead", dynamic=True: of each size first the graphs of the forward
# and the backward are prepared, then, in the next step, both are recorded.
_OF_A_SIZE: tuple[dict[str, Any], ...] = (
    {"seconds": 0.000299, "phase_us": {"cudagraph": 285}, "new_sizes": 1},
    {"seconds": 0.000411, "phase_us": {"cudagraph": 392}, "new_sizes": 1, "backward": True},
    {"seconds": 0.001669, "phase_us": {"cudagraph": 2782}, "recorded": 1},
    {"seconds": 0.001537, "phase_us": {"cudagraph": 3406}, "recorded": 1, "backward": True},
)
_MODEL = {"name": "inner", "file": "external_utils.py", "line": 67}
_FORWARD = {"t": 1, "event": "compilation", "kind": "forward", "id": "0/0", **_MODEL}


def recorded(sizes: int, **of: Any) -> list[dict[str, Any]]:
    """The lines of the CUDA graphs of so many sizes, of which the allocator reserves 2 MB more."""
    known = {"t": 2, "event": "compilation", "kind": "cudagraph", "id": "0/0", **of}
    lines = [{**known, **one, "reserved": 92274688} for _ in range(sizes) for one in _OF_A_SIZE]
    return [*lines[:-1], {**lines[-1], "reserved": 94371840}]


def found(folder: Path, *lines: dict[str, Any]) -> list[Inefficiency]:
    journal = Journal()
    with Folder(str(write_record(folder, live_slot(), events=lines))) as opened:
        journal.follow(opened)
    assert not journal.broken_lines
    return of(
        recordings=journal.sums.functions.recordings,
        spills=journal.sums.spills,
        fallbacks=journal.sums.fallbacks,
        bypasses=journal.sums.bypasses,
        strict_exports=journal.sums.strict_exports,
    )


def view(
    fallbacks: tuple[Fallback, ...] = (), compilations: tuple[Compilation, ...] = (), **journal: Any
) -> RankView:
    return b.view(b.WARM, fallbacks=fallbacks, compilations=compilations, journal=journal)


def of(**journal: Any) -> list[Inefficiency]:
    listed, more = inefficiencies(view(**journal).figures)
    assert not more
    return listed


def test_cuda_graphs_of_many_sizes_are_named_with_their_time_and_memory(tmp_path: Path) -> None:
    (one,) = found(tmp_path, _FORWARD, *recorded(12))
    assert (one.kind, one.count, one.bytes) == ("cudagraph_sizes", 12, 2097152)
    assert one.seconds == pytest.approx(12 * (285 + 392 + 2782 + 3406) / 1e6)
    assert "12 sizes: 24 recordings in 82.4 ms, 2.1 MB reserved meanwhile" in one.words


CUSTOM_FUNCTION = "Unsupported call_function target autograd_function_apply."
SETTING = "TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD=1"


def test_a_bypassed_cache_has_pytorchs_reason_and_the_setting_that_cures_it(tmp_path: Path) -> None:
    line = {"t": 2, "event": "cache", "cache": "aot_autograd", "verdict": "bypass", "id": "0/0"}
    missed = {**line, "cache": "inductor_fx", "verdict": "miss", "key": "fq", "reason": None}
    known, other = found(
        tmp_path,
        *(missed, {**line, "reason": CUSTOM_FUNCTION}, {**line, "reason": CUSTOM_FUNCTION}),
        {**line, "cache": "inductor_fx", "reason": "mkldnn tensors unpickleable"},
    )
    assert (known.kind, known.count) == ("cache_bypass", 2)
    assert known.words.startswith("AOTAutograd's cache was bypassed 2 times, so each run compiles")
    assert CUSTOM_FUNCTION.removesuffix(".") in known.words
    assert SETTING in known.advice
    assert "Inductor's cache was bypassed, so" in other.words
    assert "status --misses" in other.advice


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (
            "Unsupported call_function target get_external_object_by_index.",
            "Use streams and events of a GPU outside of the compiled function.",
        ),
        ("Won't cache a graph with fakify_first_call enabled", "optimize_ddp = False"),
    ],
)
def test_what_pytorch_does_not_cache_is_no_function_of_the_users(reason: str, remedy: str) -> None:
    bypass = CacheBypass(cache="aot_autograd", reason=reason)
    (one,), _ = inefficiencies(view(bypasses=(bypass,)).figures)
    assert remedy in one.advice


@pytest.mark.parametrize(("torch", "has"), [("2.6.0+cu124", False), ("2.8.0", True), (None, False)])
def test_a_setting_is_named_only_if_the_pytorch_of_the_training_has_it(
    torch: str | None, has: bool
) -> None:
    bypass = CacheBypass(cache="aot_autograd", reason="Unsupported call_function target f.")
    figures = view(bypasses=(bypass,)).figures
    ((cause,), _) = inefficiencies(replace(figures, who=replace(figures.who, torch=torch)))
    assert ("unsafe_marked_cacheable_functions" in cause.advice) == has
    assert "torch.library.custom_op" in cause.advice


def test_a_strict_export_is_named_with_the_way_that_drops_nothing(tmp_path: Path) -> None:
    line = {"t": 2, "event": "compilation", "kind": "custom", "seconds": 1.5}
    strict = {**line, "name": STRICT_EXPORT}
    later = [{**_FORWARD, "id": f"{n}/0"} for n in range(30)]  # it compiles again
    (one,) = found(tmp_path, strict, {**line, "name": EXPORT}, strict, *later)
    assert (one.kind, one.count, one.seconds) == ("strict_export", 2, 3.0)
    assert "2 strict torch.export" in one.words
    assert "strict=False" in one.advice


def test_a_kernel_that_spills_is_named_with_the_share_of_a_launch(tmp_path: Path) -> None:
    lines = (
        {"t": 1, "event": "spill", "kernel": "softmax_0", "registers": 1844},
        {"t": 2, "event": "spill", "kernel": "tuned", "registers": 924, "seconds": 0.0036},
        {"t": 3, "event": "spill", "kernel": "triton_poi_fused_sin_0", "registers": 8},
        {"t": 4, "event": "spill", "kernel": "triton_red_fused_sum_0", "registers": 800},
        {"t": 5, "event": "spill", "kernel": "triton_tem_fused_flex_attention_0", "registers": 76},
    )
    tuned, plain, of_inductor, of_template = found(tmp_path, *lines)
    words = "kernel `tuned` spills 924 registers of each thread; one launch takes 3.6 ms (10.0 %"
    assert tuned.words == f"{words} of a step)"
    assert (plain.called, plain.count, plain.seconds) == ("softmax_0", 1844, None)
    assert plain.words == "kernel `softmax_0` spills 1844 registers of each thread"
    assert "smaller blocks" in plain.advice
    assert "max_fusion_size" in of_inductor.advice
    assert "kernel_options" in of_template.advice


def test_each_line_of_a_break_is_shown_and_what_is_left_to_python() -> None:
    lines = tuple(TracedPlace(name="forward", file="act.py", line=line) for line in (12, 10))
    item = GraphBreak(reason="item", count=5, name="forward", file="act.py", line=14, also=lines)
    resumed = "torch_dynamo_resume_in_infer_at_10"
    at = TracedPlace(name="infer", file="moe.py", line=13)
    branch = GraphBreak(
        reason="if", count=1, name=resumed, file="moe.py", line=13, eager="all", also=(at,)
    )
    answer = status(b.snapshot(view(breaks=(item, branch))))
    first, second = answer["runs"][0]["ranks"][0]["compile"]["breaks"]
    assert (first["called"], first["also"]) == ("forward (act.py:10, :12 and :14)", [])
    assert of_break(convert(first, Break)) == "item; at forward (act.py:10, :12 and :14)"
    assert of_break(convert(second, Break)) == (
        "if; at infer (moe.py:13); all of infer after a graph break (moe.py:10) runs eagerly"
    )


def test_what_the_lists_of_an_answer_leave_out_is_counted() -> None:
    spills = tuple(Spill(kernel=f"k{n}", registers=1844) for n in range(13))
    breaks = tuple(GraphBreak(reason=f"r{n}", count=1) for n in range(24))
    varying = tuple(VaryingDim(tensor=f"x{n}", dim=0, count=1) for n in range(22))
    shown = view(spills=spills, breaks=breaks, varying=varying)
    compile = status(b.snapshot(shown))["runs"][0]["ranks"][0]["compile"]
    for name, listed, more in (("inefficiencies", 10, 3), ("breaks", 20, 4), ("varying", 20, 2)):
        assert (len(compile[name]), compile[f"more_{name}"]) == (listed, more)
    assert "3 more of these" in evidence(shown)
