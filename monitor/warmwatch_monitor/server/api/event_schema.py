"""The documentation of ``/events`` in ``/docs``."""

from __future__ import annotations

from collections.abc import Mapping

from warmwatch_monitor.status.schema.events import (
    CHANGES,
    Event,
    ResetEvent,
    SampleEvent,
    StoppingEvent,
)
from warmwatch_monitor.status.schema.status import Status

# The data of each event. `reset` also has the keys of `/status`.
EVENTS: Mapping[str, type[Status | ResetEvent | Event]] = {
    "snapshot": Status,
    "reset": ResetEvent,
    **{item.kind: item for item in CHANGES},
    SampleEvent.kind: SampleEvent,
    StoppingEvent.kind: StoppingEvent,
}

EVENTS_DESCRIPTION = (
    "Changes as they happen: server-sent events, for a browser's `EventSource`. "
    "The data of each is one JSON object. The first event is a `snapshot`, all of `/status`, so no "
    "other request is needed. Each event has an `id`: a client that reconnects with the last one "
    "as `Last-Event-ID` misses nothing of the last 8192 events (or 8 MiB), or gets a `reset`. A "
    "comment comes every 15 s. A connection ends after an hour, when the daemon does (the last "
    "event is then `stopping`), or if it is read too slowly: reconnect with the last id. With "
    "more than 1000 clients, the one that is connected longest has to reconnect."
)
EVENTS_EXAMPLE = (
    "event: state\n"
    "id: 5f3a9c01-17\n"
    'data: {"at":1763679040.2,"run":"gpt2","summary":"gpt2: warm since step 4 ...","rank":0,'
    '"state":"warm","before":"warming","since":1763679040.1}\n\n'
)

HISTORY_DESCRIPTION = (
    "The last hour, second by second, in columns. `at` is the end of each value in seconds since "
    "the epoch, and each column has one value for each of `at`. `seconds` is the time that a value "
    "covers: 1, unless `points` limits their number; then values are means, and `steps` is the "
    "last. Of a rank: `steps` in total; `step_seconds`, the mean of the clean steps since the "
    "value before, of the last ones if none ended since; `compile_seconds` within a second; "
    "`states`, `phases` and `pauses` (`evaluation`, `saving`) as `[at, name]` of their begin, to "
    "the second whatever `points` is, with null for none or unknown; `recompiles` as "
    "`compile.last` of `/status` has them, with `at`, the time of their end. Of a GPU: "
    "`utilization_ratio`, `power_watts`, `memory_used_bytes`. Unknown values are null; a second "
    "without a poll has states and GPU values of the next one, if that came within 2 s. The daemon "
    "holds 256 ranks and 64 GPUs in memory, from its start on."
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
