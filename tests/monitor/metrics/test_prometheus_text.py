"""/metrics: names, values, what is absent, and the checks of promtool and OpenMetrics parsers."""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from support import builders as b
from support import golden
from support.documents import status
from support.values import replace
from warmwatch.shared.record import BOUNDS_NS
from warmwatch_monitor.figures.machine import Host, Refusal, SourceHealth
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.machine import ObservedTraining, ProcessReading
from warmwatch_monitor.model.snapshot import RankView, RecordRoom, Snapshot, Spending

STATES = b.in_every_state()
PROCESS = ProcessReading(
    pid=4711, cpu_seconds=180.25, resident_bytes=3 * 10**9, workers_busy=1, workers_idle=3
)
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def text(snapshot: Snapshot) -> str:
    body, content_type = render(snapshot, None, version="0.1.0")
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return body.decode()


def series(snapshot: Snapshot) -> Series:
    """Every sample by name and labels; fails where one appears twice."""
    samples = [s for family in plain(text(snapshot)) for s in family.samples]
    found = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def of_rank(view: RankView, name: str, **labels: str) -> float | None:
    own = {"run": "gpt2", "rank": "0", **labels}
    return series(b.snapshot(view)).get((name, frozenset(own.items())))


def rich() -> Snapshot:
    """Two ranks of one run, one of them compiling on a GPU, a run that ended, one without the
    agent; a source that is down."""
    down = SourceHealth(source="host", up=False, error="permission denied")
    gpu = b.gpu()
    first = b.as_rank(b.RECOMPILING, 0, 2)
    identity = replace(
        first.identity,
        host="node7",
        launcher="torchelastic",
        gpus=(gpu.uuid,),
        collective_timeout=600.0,
        collective_backend="nccl",
        labels={"namespace": "research", "pod": "gpt2-0", "slurm_job": "4242"},
    )
    spent = Spending(
        compile_joules=5170.5, compile_seconds=113.2, clean_joules=9000.0, clean_steps=400.0
    )
    return b.snapshot(
        b.view(
            replace(first, identity=identity),
            process=replace(PROCESS, threads=42),
            compilations=(b.RECOMPILATION,),
            gpus=(gpu,),
            spending=spent,
        ),
        b.view(b.as_rank(b.WARM, 1, 2)),
        b.in_every_state("bert")["failed"],
        gpus=(gpu,),
        host=Host(memory_total_bytes=64, memory_available_bytes=48, cpus=16, load_1m=1.5),
        observed=(ObservedTraining(pid=1, command="python train.py", likely_compiling=True),),
        sources=(b.HEALTH, down, SourceHealth(source="observed", up=True)),
        refusals=(Refusal(path="/run/warmwatch/x", reason="torn record"),),
        rooms=(
            RecordRoom(
                directory="/run/warmwatch",
                free_bytes=64 << 20,
                free_inodes=None,
                identity="0123456789ab",
            ),
        ),
    )


def test_the_output_matches_the_reviewed_one_with_and_without_a_run(tmp_path: Path) -> None:
    golden.check("metrics_rich.txt", text(rich()), tmp_path)
    empty = b.snapshot(sources=(SourceHealth(source="records", up=True),))
    golden.check("metrics_empty.txt", text(empty), tmp_path)


@pytest.mark.parametrize("state", [*STATES, "rich", "empty"])
def test_promtool_reports_nothing(state: str) -> None:
    snapshots = {"rich": rich(), "empty": b.snapshot()}
    snapshot = snapshots.get(state) or b.snapshot(STATES[state])
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(snapshot), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=1.0.0",
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
            "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        ),
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.2",
    ],
)
def test_openmetrics_is_sent_if_requested_and_has_the_same_values(accept: str) -> None:
    body, content_type = render(rich(), accept, version="0.1.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    samples = [s for family in openmetrics(body.decode()) for s in family.samples]
    assert {(s.name, frozenset(s.labels.items())): s.value for s in samples} == series(rich())


@pytest.mark.parametrize("state", STATES)
def test_the_metrics_agree_with_status(state: str) -> None:
    view = STATES[state]
    rank = status(b.snapshot(view))["runs"][0]["ranks"][0]
    found = series(b.snapshot(view))

    def total(name: str) -> float:
        return sum(value for (n, _), value in found.items() if n == f"warmwatch_{name}")

    assert total("warm") == (state in {"warm", "eager"})
    assert total("compiling") == (state in {"compiling", "recompiling"})
    assert total("compile_phase") == (rank["compile"]["phase"] is not None)
    assert total("compile_seconds_total") == pytest.approx(rank["compile"]["seconds"])
    assert total("recompiles_total") == rank["compile"]["recompiles"]
    assert total("steps_total") == rank["steps"]
    assert of_rank(view, "warmwatch_warmup_seconds") == rank["warmup"]["seconds"]
    first = (rank["warmup"]["first"] or {}).get("seconds")
    assert of_rank(view, "warmwatch_first_warmup_seconds") == first
    assert of_rank(view, "warmwatch_warmup_steps") == rank["warmup"]["steps"]
    ended_at = of_rank(view, "warmwatch_warmup_end_timestamp_seconds")
    assert ended_at == rank["warmup"]["ended_at"]


def test_unknown_values_have_no_series() -> None:
    starting = STATES["starting"]
    for name in (
        *("warmup_seconds", "warmup_steps", "warmup_end_timestamp_seconds", "tokens_total"),
        *("last_step_timestamp_seconds", "samples_total", "process_cpu_seconds_total"),
        "process_resident_memory_bytes",
    ):
        assert of_rank(starting, f"warmwatch_{name}") is None, name
    assert of_rank(starting, "warmwatch_compile_workers", state="busy") is None


@given(st.lists(st.integers(min_value=1, max_value=3 * 10**13), max_size=30))
def test_buckets_count_the_steps_up_to_their_bound(durations: list[int]) -> None:
    slot = replace(b.WARM, clean_bins=b.bins(*durations))
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in series(b.snapshot(b.view(slot))).items()
        if name == "warmwatch_step_seconds_bucket" and ("kind", "clean") in labels
    }
    assert buckets.pop("+Inf") == len(durations)
    assert len(buckets) == 37
    for le, count in buckets.items():
        bound = round(float(le) * 10**9)
        assert BOUNDS_NS[bisect_left(BOUNDS_NS, bound)] == bound
        assert count == sum(duration <= bound for duration in durations)


def test_a_run_name_with_quotes_and_newlines_is_escaped() -> None:
    name = 'a"b\\c\nd'
    odd = replace(b.WARM, identity=replace(b.WARM.identity, run=name))
    assert name in {dict(labels).get("run") for _, labels in series(b.snapshot(b.view(odd)))}


@pytest.mark.parametrize(
    ("hook_point", "gone"),
    [
        ("runtime_compilations", {"warmwatch_compilations_total"}),
        ("recompile_limit", {"warmwatch_compile_fallbacks_total"}),
        (
            "compilations",
            {
                "warmwatch_compilations_total",
                "warmwatch_graphs_total",
                "warmwatch_graph_breaks_total",
                "warmwatch_compile_failures_total",
                "warmwatch_cudagraph_skips_total",
                "warmwatch_recompiles_total",
                "warmwatch_recompiles_after_warm_total",
                "warmwatch_compile_cache_hits_total",
                "warmwatch_compile_cache_misses_total",
            },
        ),
    ],
)
def test_counts_that_a_torch_lacks_have_no_series(hook_point: str, gone: set[str]) -> None:
    identity = replace(b.WARM.identity, missing=(hook_point,))
    whole = series(b.snapshot(b.view(b.WARM)))
    less = series(b.snapshot(b.view(replace(b.WARM, identity=identity))))
    lost = whole.keys() - less.keys()
    assert {name for name, _ in lost} == gone
    # compilations before run time are counted all the same
    if hook_point == "runtime_compilations":
        kinds = {dict(labels)["kind"] for _, labels in lost}
        assert kinds == {"autotune", "cudagraph", "other"}
