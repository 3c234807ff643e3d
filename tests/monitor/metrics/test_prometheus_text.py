"""/metrics: names, values, what is absent, and the checks of promtool and OpenMetrics parsers."""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from itertools import pairwise
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
from warmwatch_monitor.metrics import DaemonSeries, render
from warmwatch_monitor.model import (
    BUCKET_SECONDS,
    DISABLED,
    PHASES,
    Host,
    ObservedTraining,
    ProcessReading,
    RankView,
    RecordRoom,
    Refusal,
    Snapshot,
    SourceHealth,
    Spending,
)

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


def test_the_output_matches_the_reviewed_one(tmp_path: Path) -> None:
    golden.check("metrics_rich.txt", text(rich()), tmp_path)


def test_the_output_without_a_run_matches_the_reviewed_one(tmp_path: Path) -> None:
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


def test_a_rank_without_a_gpu_has_every_other_series_of_the_contract() -> None:
    user = replace(b.WARM.identity, samples_per_step=16, world_size=1)
    counts = replace(b.WARM.compile, samples_per_step=16)
    steps = replace(b.WARM.steps, batches=3610, last_batch_ns=b.ago(3))
    full = b.view(replace(b.WARM, steps=steps, identity=user, compile=counts), process=PROCESS)
    names = {name for name, _ in series(b.snapshot(full))}
    assert [name for name in names if "gpu" in name or "joules" in name] == []
    assert names >= {
        "warmwatch_" + name
        for name in (
            *("warm", "compiling", "state", "condition", "compile_limit_seconds"),
            "compile_seconds_total",
            *("compilations_total", "graphs_total", "graph_breaks_total"),
            *("compile_failures_total", "compile_fallbacks_total", "recompiles_total"),
            *("recompiles_after_warm_total", "compile_cache_hits_total"),
            *("compile_cache_misses_total", "compile_workers", "warmup_seconds"),
            "first_warmup_seconds",
            *("warmup_steps", "warmup_end_timestamp_seconds", "steps_total"),
            *("last_step_timestamp_seconds", "step_seconds_bucket", "step_seconds_count"),
            *("step_seconds_sum", "tokens_total", "samples_total"),
            *("process_cpu_seconds_total", "process_resident_memory_bytes"),
            *("agent_errors_total", "journal_dropped_lines_total", "run_info"),
            "journal_lines_refused",
            "journal_unread_bytes",
            *("source_up", "source_last_success_timestamp_seconds", "source_read_seconds"),
            *("records_refused", "build_info", "world_size", "clean_steps"),
            *("state_start_timestamp_seconds", "attach_timestamp_seconds"),
            *("compile_end_timestamp_seconds", "steady_step_seconds", "stall_limit_seconds"),
            *("batches_total", "data_wait_seconds_total", "last_batch_timestamp_seconds"),
            *("checkpoint_seconds_total", "recent_step_seconds", "last_step_age_seconds"),
            *("compile_wrappers_total", "cudagraph_skips_total"),
            "compile_background_seconds_total",
        )
    }


@pytest.mark.parametrize("state", STATES)
def test_only_the_series_of_the_present_state_is_1(state: str) -> None:
    found = series(b.snapshot(STATES[state]))
    states = {dict(labels)["state"]: v for (n, labels), v in found.items() if n.endswith("_state")}
    assert states == {name: float(name == state) for name in STATES}


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


def test_workers_read_only_once_are_not_counted_as_busy_or_idle() -> None:
    once = b.view(b.WARM, process=replace(PROCESS, workers_busy=None, workers_idle=None))
    assert of_rank(once, "warmwatch_compile_workers", state="idle") is None
    assert of_rank(once, "warmwatch_process_cpu_seconds_total") == 180.25


def test_tokens_are_steps_times_tokens_per_step() -> None:
    assert of_rank(b.view(b.WARM), "warmwatch_tokens_total") == 3602 * 16384


def test_tokens_before_and_after_a_changed_value_are_added() -> None:
    changed = {"tokens_per_step": 10, "tokens_before": 3600 * 16384, "worth_since": 3600}
    later = replace(b.WARM, compile=replace(b.WARM.compile, **changed))
    assert of_rank(b.view(later), "warmwatch_tokens_total") == 3600 * 16384 + 2 * 10


def test_compile_time_never_shrinks_when_a_compiling_rank_dies() -> None:
    alive = of_rank(b.view(b.COMPILING), "warmwatch_compile_seconds_total", phase="inductor")
    lost = b.view(b.COMPILING, alive=False, gone=0)
    assert of_rank(lost, "warmwatch_compile_seconds_total", phase="inductor") == alive == 40.0


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


def test_quantiles_of_the_buckets_are_near_the_true_ones() -> None:
    """As histogram_quantile interpolates them: the buckets are less than 1.5 apart."""
    assert all(b < 1.5 * a for a, b in pairwise(BUCKET_SECONDS))
    for true in (0.0106, 0.106, 0.248, 21.0):
        upto = b.view(replace(b.WARM, clean_bins=b.bins(*[round(true * 1e9)] * 100)))
        counts = upto.figures.steps.clean.upto or ()
        at = bisect_left(counts, 50)
        low, high = BUCKET_SECONDS[at - 1], BUCKET_SECONDS[at]
        assert low + (high - low) * 0.5 == pytest.approx(true, rel=0.25)


def test_a_gauge_that_nothing_holds_has_no_series() -> None:
    """A rank that is warm: no phase, nothing that turns compilation off, one limit at most."""
    quiet = {name for name, _ in series(b.snapshot(b.view(b.WARM)))}
    assert not quiet & {"warmwatch_compile_phase", "warmwatch_compile_disabled"}
    off = replace(b.WARM, compile=replace(b.WARM.compile, disabled=2))
    shown = [name for name, _ in series(b.snapshot(b.view(off))) if name.endswith("_disabled")]
    assert len(shown) == len(DISABLED) - 1
    phases = series(b.snapshot(b.view(b.COMPILING)))
    assert sum(name == "warmwatch_compile_phase" for name, _ in phases) == len(PHASES)


def test_step_time_sums_equal_those_of_the_record() -> None:
    warm = b.view(b.WARM)
    assert of_rank(warm, "warmwatch_step_seconds_sum", kind="clean") == pytest.approx(129.68)
    assert of_rank(warm, "warmwatch_step_seconds_count", kind="clean") == 3601
    assert of_rank(warm, "warmwatch_step_seconds_sum", kind="compile") == pytest.approx(120.3)
    assert of_rank(warm, "warmwatch_step_seconds_count", kind="compile") == 1


def test_a_run_name_with_invalid_utf_8_is_replaced_in_a_label() -> None:
    odd = replace(b.WARM, identity=replace(b.WARM.identity, run="caf\udce9"))
    names = {dict(labels).get("run") for _, labels in series(b.snapshot(b.view(odd)))}
    assert "caf?" in names


def test_a_run_name_with_quotes_and_newlines_is_escaped() -> None:
    name = 'a"b\\c\nd'
    odd = replace(b.WARM, identity=replace(b.WARM.identity, run=name))
    assert name in {dict(labels).get("run") for _, labels in series(b.snapshot(b.view(odd)))}


def test_without_a_version_there_is_no_build_info() -> None:
    body, _ = render(b.snapshot(), None)
    assert b"build_info" not in body


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


def test_a_daemon_adds_its_process_its_place_and_its_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the names that Prometheus' client libraries share; promtool has nothing to say."""
    monkeypatch.setenv("NODE_NAME", "node-a")
    monkeypatch.setenv("POD_NAMESPACE", "monitoring")
    monkeypatch.setenv("POD_NAME", "warmwatch-x7")
    snapshot = b.snapshot(b.view(b.WARM))
    body, _ = render(snapshot, None, version="0.1.0", daemon=DaemonSeries())
    done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    samples = {s.name: s for family in plain(body.decode()) for s in family.samples}
    assert samples.keys() >= {
        "process_start_time_seconds",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_max_fds",
    }
    place = {"daemon_host": "node-a", "daemon_namespace": "monitoring"}
    assert samples["warmwatch_daemon_info"].labels == place | {"daemon_pod": "warmwatch-x7"}
    assert samples["warmwatch_time_seconds"].value == snapshot.epoch
