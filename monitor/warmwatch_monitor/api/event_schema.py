"""The documentation of ``/events`` in ``/docs``."""

from __future__ import annotations

from collections.abc import Mapping

from warmwatch_monitor.api.changes import KINDS

# event -> what it tells, beside `at`, `run` and `summary` (and `rank`, where it is of one)
MEANINGS: Mapping[str, str] = {
    "snapshot": "all that is so now, as `/status` has it: the first event of a connection",
    "reset": "the same, where events were missed: `why` is `too_old` (the last id has left the "
    "daemon's memory) or `another_daemon` (the id is of another life of the daemon)",
    "attached": "a rank is here, or another process has taken its place: `attached_at`, `attempt`",
    "state": "a rank's state: `state`, `before` (null at first), `since`",
    "condition": "what holds of a rank beside its state: `conditions`, `before`, names as in "
    "`/status`",
    "compile_begin": "compile activity has begun: `began_at`, `phase`, and `underway` as `/status` "
    "has it, null for as long as that is not known",
    "phase": "what it does now, and what of: `phase`, `underway`",
    "compilation": "one compilation has ended: `compilation`, as one of `compile.last` of "
    "`/status`, with its reason and advice",
    "compile_end": "compile activity has ended: `compile_seconds`, all of the rank's so far",
    "reopened": "a rank that was warm compiles again: `by` is the compilation that says why, null "
    "for as long as none does",
    "warm": "a rank is warm, or eager: `seconds`, `steps` and `ended_at` of its warm-up",
    "ended": "a rank has ended: `end`, as `/status` has it",
    "run": "a run's state: `state`, `before`, `compiling`, `warm`",
    "gone": "a run is not shown any more: it ended long ago, or its records were taken away",
    "source": "a source has failed or works again: `source`, `up`, `error`",
}

EVENTS_DESCRIPTION = (
    "What changes, as it happens: server-sent events, as a browser's `EventSource` reads them. "
    "The data of each is one JSON object; `at` is when it was seen, seconds since the epoch, "
    "`summary` the run's sentence then. The first event is a `snapshot`, so nothing else need be "
    "asked for. Each has an `id`: who comes back with the last one as `Last-Event-ID` misses "
    "nothing of the last 8192 events (or 8 MiB), or is told by a `reset`. A comment comes every "
    "15 s. A connection ends after an hour, when the daemon does, or where it is read too slowly; "
    "come back with the last id. At most 1000 clients listen at once. "
    + " ".join(f"`{kind}`: {meaning}." for kind, meaning in MEANINGS.items())
)
EVENTS_RUN_DESCRIPTION = (
    "Events of this run alone, and of sources. It need not be there yet. Names as in `/status`."
)
KINDS_DESCRIPTION = (
    "Events of these kinds alone, with commas between. The first event, and a `reset`, come anyhow."
)
_KIND = f"({'|'.join(KINDS)})"
KINDS_PATTERN = f"^({_KIND}(,{_KIND})*)?$"
SAMPLES_DESCRIPTION = (
    "With `true` also an event `sample` once a second, which has no id: the figures of the moment, "
    "as `/history` keeps them, with the sentences, and of a rank that counts what it compiles its "
    "`progress`, and of a living one `last_step_age_seconds`, `pause`, `silent`, `since`, "
    "`left_seconds` (of the compilation) and `a_step_seconds` (the sentence's speed)."
)
LAST_ID_DESCRIPTION = "The id of the last event that was read; browsers send it by themselves."
EVENTS_EXAMPLE = (
    "event: state\n"
    "id: 5f3a9c01-17\n"
    'data: {"at":1763679040.2,"run":"gpt2","summary":"gpt2: warm since step 4 ...","rank":0,'
    '"state":"warm","before":"warming","since":1763679040.1}\n\n'
)

HISTORY_DESCRIPTION = (
    "The last hour, second by second, in columns: `at` is the end of each value, seconds since the "
    "epoch, and each column has one value for each of `at`; `seconds` is how many seconds a value "
    "is of (1, unless fewer `points` are asked for: then means, of `steps` the last). Of a rank: "
    "`steps`, all so far; `step_seconds`, the last one's length; `compile_seconds` within a "
    "second; `states`, `phases` and `pauses` (`evaluation`, `saving`), each as it "
    "began: `[at, name]`, to the second whatever `points` says, and null where none is known "
    "or there is none; `recompiles`, as `compile.last` of `/status` has them, with the time `at` "
    "which each ended. Of a GPU: "
    "`utilization_ratio`, `power_watts`, `memory_used_bytes`. What is not known is null. Kept for "
    "256 ranks and 64 GPUs, in the daemon's memory: it begins with the daemon."
)
HISTORY_EXAMPLE: Mapping[str, object] = {
    "at": [1763679040.2, 1763679041.2],
    "seconds": 1,
    "ranks": [
        {
            "run": "gpt2",
            "rank": 0,
            "steps": [2, 29],
            "step_seconds": [0.036, 0.036],
            "compile_seconds": [0.8, 0.0],
            "states": [[1763679040.2, "compiling"], [1763679041.2, "warm"]],
            "phases": [[1763679040.2, "inductor"], [1763679041.2, None]],
            "pauses": [[1763679040.2, None]],
            "recompiles": [],
        }
    ],
    "gpus": [
        {
            "uuid": "gpu-71d7c0de",
            "index": 0,
            "power_limit_watts": 700.0,
            "utilization_ratio": [0.0, 0.98],
            "power_watts": [120.5, 691.0],
            "memory_used_bytes": [77e9, 77e9],
        }
    ],
}
