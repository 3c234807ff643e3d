"""What is broken, and which tests are to fail of it: those that are about it."""

from __future__ import annotations

_RECORD = ("agent/test_record.py", "agent/test_record_parts.py")
_VERDICT = (
    *("agent/test_verdict_edges.py", "agent/test_verdict_conditions.py"),
    *("agent/test_long_compile.py", "agent/test_verdict.py"),
)
_RUNS = ("monitor/test_runs.py", "monitor/test_ranks.py")
_SPENDING = (
    *("monitor/test_spending.py", "monitor/test_spending_windows.py"),
    "monitor/test_accounts.py",
)

TARGETS: dict[str, tuple[str, ...]] = {
    "warmwatch.verdict": (*_VERDICT, "agent/test_record_parts.py"),
    "warmwatch.states": _VERDICT,
    "warmwatch.record": _RECORD,
    "warmwatch.record.bins": _RECORD,
    "warmwatch.record.ends": _RECORD,
    "warmwatch.record.facts": (*_RECORD, *_VERDICT),
    "warmwatch.record.identity": _RECORD,
    "warmwatch.record.layout": _RECORD,
    "warmwatch.record.lock": _RECORD,
    "warmwatch.record.seal": _RECORD,
    "warmwatch.record.stacks": ("agent/test_record_stacks.py",),
    "warmwatch.record.words": _RECORD,
    "warmwatch_monitor.runs": _RUNS,
    "warmwatch_monitor.spending": _SPENDING,
    "warmwatch_monitor.feed": ("monitor/test_feed.py",),
}
