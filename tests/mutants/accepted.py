"""How many mutants of a function may survive, with the reasons. A number that fell is lowered."""

from __future__ import annotations

_BOOT = "a nanosecond after the boot is as long ago as the boot itself"
_BILLIONTH = "a billionth more or less is far below what the figure is exact to"
_SAME_MOMENT = "two processes do not attach in the same nanosecond"
_NOBODY = "without a living rank no stall is judged"

# by module and function: each reason, and how many survivors it explains
ACCEPTED: dict[str, dict[str, dict[str, int]]] = {
    "warmwatch.shared.record.sealed_blocks": {
        "unseal": {"caught: the message is that of both places": 2},
    },
    "warmwatch.shared.record.recent": {
        "packed": {"pauses are rounded to seconds": 1},
        "is_clean": {"that word has no length": 1},
        "recent_lengths": {"the loop after the fast path has the same result": 2},
        "_since_change": {
            "not all steps are longer than their median": 1,
            "there are at least three lengths": 1,
        },
        "queued_ns": {"10 % is a rough limit": 1},
        "waits": {"a bin is 5 % wide, and the limit is rough": 1},
    },
    "warmwatch.shared.record.liveness": {
        "module": {"the kernel writes the pid, only": 1},
    },
    "warmwatch.shared.record.layout": {
        "module": {"all machines that PyTorch runs on have this byte order": 4},
        "check_header": {"an equal version was accepted before": 1},
        "unpack": {"with_hot_words replaces it": 3},
        "_caught_up": {
            "words that count the step include its mark: their count is stored last": 1,
            "an irregular step is none of the clean ones that end a warm-up": 1,
        },
    },
    "warmwatch.shared.verdict": {
        "stall_after_ns": {"the least limit is a minute": 1},
        "_slower_than_before": {"only what holds is named": 1},
        "recently_touched": {"only a cost: then none of them is later either": 1},
    },
    "warmwatch_monitor.pipeline.runs": {
        "_of_latest_start": {_SAME_MOMENT: 1},
        "_made_rank": {_SAME_MOMENT: 1},
        "_last_seen": {_BOOT: 1},
        "_run": {_NOBODY: 2, _BOOT: 3, "callers first check whether there are any": 1},
        "_view": {_BOOT: 3},
        "facts": {_BILLIONTH: 1},
    },
    "warmwatch_monitor.sources.listed": {
        "Feed.__init__": {"set before it is read": 1},
        "Feed.current": {_BOOT: 1, _BILLIONTH: 1},
        "Feed.follow": {_BILLIONTH: 1},
    },
}
