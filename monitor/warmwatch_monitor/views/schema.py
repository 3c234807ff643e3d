"""What ``/status`` looks like, for ``/docs`` and ``/openapi.json``: an example and its prose.

Documentation only: answers are built by ``export.status`` and are not validated against this on
each request; a test holds the example's keys to what is built.
"""

from __future__ import annotations

from typing import Any

STATUS_DESCRIPTION = (
    "Whether torch.compile is still at work, with the evidence. `compiling` and `warm` are null "
    "where no run lives. What is not known is null. Times are seconds since the epoch, durations "
    "seconds; `at` is when the records were read: all that was recorded by then is in the answer. "
    "Keys may be added; within one `schema_version` none changes its meaning."
)

_RANK: dict[str, Any] = {
    "rank": 0,
    "state": "warming",
    "since": 1763679000.2,
    "steps": 1,
    "clean_steps": 0,
    "compile": {
        "phase": None,
        "seconds": 113.2,
        "gpu_seconds": None,
        "phase_seconds": {"dynamo": 3.1, "inductor": 110.1},
        "compilations": 2,
        "graphs": 1,
        "recompiles": 0,
        "recompiles_after_warm": 0,
        "graph_breaks": 0,
        "cache_hits": 0,
        "cache_misses": 2,
        "caches": {"inductor_fx": {"hits": 0, "misses": 2}},
        "failures": 0,
        "fallbacks": 0,
        "underway": None,
        "breaks": [],
        "last": [
            {
                "id": "0/1",
                "kind": "forward",
                "seconds": 10.5,
                "reason": "GLOBAL_STATE changed: grad_mode",
                "plain": "grad mode changed: evaluation or no_grad",
                "category": "grad_mode",
                "advice": "Run one evaluation step at the start of the run.",
                "name": "forward",
                "file": "model.py",
                "line": 31,
                "cache": "miss",
                "failure": None,
            }
        ],
    },
    "warmup": {
        "ended": False,
        "ended_at": None,
        "seconds": None,
        "steps": None,
        "count": 0,
        "first": None,
    },
    "step_seconds": {"first": 113.5, "last": 113.5, "median": None, "p99": None},
    "batches": {"count": 8, "wait_seconds": 0.4},
    "cost": {
        "first_step_seconds": 113.5,
        "steady_step_seconds": None,
        "beyond_steady_seconds": None,
        "steps_touched": 1,
    },
    "conditions": [],
    "gpus": [],
    "energy": None,
    "evidence": ["step 1 held 113.2 s of compile activity"],
    "pid": 4711,
    "host": "node7",
    "attempt": 0,
    "alive": True,
    "end": None,
    "process": {
        "cpu_seconds": 180.4,
        "resident_bytes": 3_100_000_000,
        "cpu_ratio": 1.0,
        "threads": 42,
        "workers_busy": 0,
        "workers_idle": 4,
    },
    "agent_errors": 0,
}

STATUS_EXAMPLE: dict[str, Any] = {
    "schema_version": 1,
    "at": 1763679043.1,
    "compiling": False,
    "warm": False,
    "summary": "gpt2: warming, 0 of 3 clean steps since the last compile activity",
    "runs": [
        {
            "run": "gpt2",
            "state": "warming",
            "compiling": False,
            "warm": False,
            "summary": "gpt2: warming, 0 of 3 clean steps since the last compile activity",
            "compile_gpu_seconds": None,
            "compile_joules": None,
            "world_size": 1,
            "missing_ranks": [],
            "skew": None,
            "ranks": [_RANK],
        }
    ],
    "gpus": [],
    "host": {
        "memory_total_bytes": 137_438_953_472,
        "memory_available_bytes": 98_000_000_000,
        "cpus": 16,
        "load_1m": 5.2,
    },
    "observed": [],
    "sources": [
        {
            "source": "records",
            "up": True,
            "last_success": 1763679040.1,
            "read_seconds": 0.0004,
            "error": None,
        }
    ],
    "exports": [{"export": "otlp", "up": True, "last_success": 1763679000.4, "error": None}],
    "directories": ["/run/user/1000/warmwatch"],
    "refusals": [{"path": "/run/user/1000/warmwatch/x", "reason": "not a Warmwatch record"}],
    "more_refusals": 0,
}
