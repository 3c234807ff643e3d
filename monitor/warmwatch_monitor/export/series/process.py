"""The series of a rank's process, and of the agent in it, in the order of /metrics.

Names, types and labels are public.
"""

from __future__ import annotations

from warmwatch_monitor.export.series.table import Series, counter, gauge
from warmwatch_monitor.model import RankView

PROCESS_SERIES: tuple[Series[RankView], ...] = (
    counter(
        "warmwatch_process_cpu_seconds_total",
        "CPU time of the training process.",
        lambda view: None if view.process is None else view.process.cpu_seconds,
    ),
    gauge(
        "warmwatch_process_resident_memory_bytes",
        "Resident memory of the training process.",
        lambda view: None if view.process is None else view.process.resident_bytes,
    ),
    gauge(
        "warmwatch_process_threads",
        "Threads of the training process.",
        lambda view: None if view.process is None else view.process.threads,
    ),
    counter(
        "warmwatch_agent_errors_total",
        "Errors of the agent's own that it swallowed.",
        lambda view: view.figures.agent.errors,
    ),
    counter(
        "warmwatch_journal_dropped_lines_total",
        "Journal lines that the agent could not write.",
        lambda view: view.figures.agent.lines_dropped,
    ),
    gauge(
        "warmwatch_journal_lines_refused",
        "Lines of the rank's journal that cannot be read.",
        lambda view: view.figures.agent.lines_broken,
    ),
    gauge(
        "warmwatch_journal_unread_bytes",
        "Bytes of the rank's journal that the monitor has not read yet, or skips.",
        lambda view: view.figures.agent.incomplete_bytes,
    ),
)
