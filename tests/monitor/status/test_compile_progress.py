"""The progress of a compilation and torch's memory: sentence, /status, series, and read back."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as plain

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.machine import Sample
from warmwatch_monitor.model.snapshot import RankView, Snapshot
from warmwatch_monitor.sources.fleet import assemble
from warmwatch_monitor.status.words.sentence import summary

COUNTED = replace(b.COMPILING.compile, progress_of=1, progress_done=31, progress_total=86)
HELD = replace(b.WARM.compile, memory=(10, 20, 30, 40), memory_ns=b.ago(130))


def back(snapshot: Snapshot) -> RankView:
    """The one rank as a Prometheus that scraped it tells of it."""
    body = render(snapshot, None)[0].decode()
    reported = [
        Sample(name=s.name.removeprefix("warmwatch_"), labels=dict(s.labels), value=s.value)
        for family in plain(body)
        for s in family.samples
    ]
    ((rank,),) = (run.ranks for run in assemble(reported, b.EPOCH).runs)
    return rank


def test_progress_and_memory_are_read_back_from_a_prometheus() -> None:
    compiling = b.view(replace(b.COMPILING, compile=COUNTED))
    requested = replace(b.EAGER, compile=replace(b.EAGER.compile, wrappers=2, disabled=2))
    tuned = b.view(replace(b.COMPILING, compile=replace(COUNTED, progress_of=2)))
    for view in (compiling, tuned, b.view(replace(b.WARM, compile=HELD)), b.view(requested)):
        reported = back(b.snapshot(view)).figures
        assert reported.compile.open == view.figures.compile.open
        assert reported.compile.wrappers == view.figures.compile.wrappers
        assert reported.compile.disabled == view.figures.compile.disabled
        assert (reported.memory and reported.memory.bytes) == (
            view.figures.memory and view.figures.memory.bytes
        )


def test_progress_is_in_the_sentence_in_status_and_in_series() -> None:
    snapshot = b.snapshot(b.view(replace(b.COMPILING, compile=COUNTED)))
    assert ": kernels 31 of 86" in summary(snapshot)
    (rank,) = status(snapshot)["runs"][0]["ranks"]
    assert rank["compile"]["progress"] == {"of": "kernels", "done": 31, "total": 86}
    body = render(snapshot, None)[0].decode()
    assert 'warmwatch_compile_progress_done{of="kernels",rank="0",run="gpt2"} 31.0' in body
    assert 'warmwatch_compile_progress_planned{of="kernels",rank="0",run="gpt2"} 86.0' in body
