"""The modules that are mutated, and for each the tests of which one must fail."""

from __future__ import annotations

_RECORD = ("agent/shared/test_record.py", "agent/shared/test_record_parts.py")
_VERDICT = (
    *("agent/shared/test_verdict_edges.py", "agent/shared/test_verdict_conditions.py"),
    *("agent/shared/test_long_compile.py", "agent/shared/test_verdict.py"),
)
_RUNS = ("monitor/pipeline/test_runs.py", "monitor/pipeline/test_ranks.py")
_SPENDING = (
    *("monitor/pipeline/test_spending.py", "monitor/pipeline/test_spending_windows.py"),
    "monitor/pipeline/test_energy.py",
)

TARGETS: dict[str, tuple[str, ...]] = {
    "warmwatch.shared.verdict": (*_VERDICT, "agent/shared/test_record_parts.py"),
    "warmwatch.shared.states": _VERDICT,
    "warmwatch.shared.record": _RECORD,
    "warmwatch.shared.record.recent": (*_RECORD, "agent/shared/test_recent.py"),
    "warmwatch.shared.record.liveness": _RECORD,
    "warmwatch.shared.record.facts": (*_RECORD, *_VERDICT),
    "warmwatch.shared.record.identity": _RECORD,
    "warmwatch.shared.record.layout": _RECORD,
    "warmwatch.shared.record.sealed_blocks": _RECORD,
    "warmwatch.shared.record.stack_file": ("agent/shared/test_record_stacks.py",),
    "warmwatch_monitor.pipeline.runs": _RUNS,
    "warmwatch_monitor.pipeline.energy": _SPENDING,
    "warmwatch_monitor.sources.listed": ("monitor/sources/test_feed.py",),
}

# Of these modules only the changes of one class, by the start of their names.
PARTS: dict[str, str] = {"warmwatch_monitor.sources.listed": "Feed."}
