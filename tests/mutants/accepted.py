"""Mutants that may survive, each with its reason. One that no longer survives is removed."""

from __future__ import annotations

_BOOT = "a nanosecond after the boot is as long ago as the boot itself"
_BILLIONTH = "a billionth more or less is far below what the figure is exact to"

_FIPS = "only an interpreter that allows approved digests alone would refuse it"
_ORDER = "all machines that PyTorch runs on have this byte order"
_NOBODY = "without a living rank no stall is judged"
_LENGTHS = "an assert at the import holds both to one length"
_FAST_PATH = "the loop after the fast path has the same result"
_FAST = "len(words) >= FEWEST and min(words) and (sum(words) <= WINDOW_NS)"
_SAME_MOMENT = "two processes do not attach in the same nanosecond"

_WORDS = "len(fields(StepCounts))"
_ZIPPED = "zip(STEPS_INDEX, words, strict=True)"
_AT_WORK = (
    "_run: at_work_ns = max((working.get(one.folder, 0) for one in readings if one.alive), "
    "default=0) -> at_work_ns = max((working.get(one.folder, {}) for one in readings if "
    "one.alive), default={})"
)
_PAUSE = (
    "_run: pause_ns = max((verdict.pause_ns(r.slot.steps, r.slot.compile) for r in readings if "
    "r.alive), default={})"
)
_SEEN = "last = max(last_sign_ns(slot), slot.compile.ended_ns, reading.gone_ns or {})"
_SEALED = "hashlib.blake2b(sealed, digest_size=8, usedforsecurity=False).digest()"

ACCEPTED: dict[str, dict[str, str]] = {
    "warmwatch.shared.record.sealed_blocks": {
        "unseal: raise TornError('torn record: the checksum of a block is wrong') -> "
        "raise TornError(None)": "caught: the message is that of both places",
        "unseal: raise TornError('torn record: the checksum of a block is wrong') -> "
        "raise TornError('')": "caught: the message is that of both places",
        **{
            f"_checksum: return {_SEALED} -> return {_SEALED.replace(before, after)}": _FIPS
            for before, after in (
                (", usedforsecurity=False", ""),
                ("usedforsecurity=False", "usedforsecurity=None"),
                ("usedforsecurity=False", "usedforsecurity=True"),
            )
        },
    },
    "warmwatch.shared.record.recent": {
        "packed(pause_ns): 0 -> 1": "pauses are rounded to seconds",
        "is_clean: return word < _NOT_CLEAN and word & LONGEST_NS > 0 -> "
        "return word <= _NOT_CLEAN and word & LONGEST_NS > 0": "that word has no length",
        **{
            f"recent_lengths: if {_FAST} -> if {_FAST.replace(before, after)}": _FAST_PATH
            for before, after in (("len(words) >=", "len(words) >"), ("(words) <=", "(words) <"))
        },
        "_since_change: if sum(lengths) < _CHANGED_NS -> if sum(lengths) <= _CHANGED_NS": (
            "not all steps are longer than their median"
        ),
        "_since_change: usual = median_ns(lengths) or 0.0 -> usual = median_ns(lengths) or 1.0": (
            "there are at least three lengths"
        ),
        "queued_ns: return mean if mean > UNEQUAL * launch else launch -> "
        "return mean if mean >= UNEQUAL * launch else launch": "10 % is a rough limit",
        "waits: return sum(bins[bisect_left(BOUNDS_NS, _LONG_TIMES * median) + 1:]) -> "
        "return sum(bins[bisect_left(BOUNDS_NS, _LONG_TIMES * median) + 2:])": (
            "a bin is 5 % wide, and the limit is rough"
        ),
    },
    "warmwatch.shared.record.liveness": {
        "module: LOCK_QUESTION = _FLOCK.pack(F_RDLCK, 0, 0, 0, 0) -> "
        "LOCK_QUESTION = _FLOCK.pack(F_RDLCK, 0, 0, 0, 1)": "the kernel writes the pid, only",
    },
    "warmwatch.shared.record.layout": {
        f"module: _WORDS = struct.Struct(f'<{{{_WORDS}}}Q') -> "
        f"_WORDS = struct.Struct(f'{{{_WORDS}}}Q')": _ORDER,
        "module: _BINS = struct.Struct(f'<{BINS}Q') -> _BINS = struct.Struct(f'{BINS}Q')": _ORDER,
        "module: _COMPILE = struct.Struct(f'<{COMPILE_WORDS}Q') -> "
        "_COMPILE = struct.Struct(f'{COMPILE_WORDS}Q')": _ORDER,
        **{
            f"unpack: steps = StepCounts(**dict({_ZIPPED})) -> "
            f"steps = StepCounts(**dict({_ZIPPED.replace(', strict=True', strict)}))": _LENGTHS
            for strict in ("", ", strict=None", ", strict=False")
        },
        "_caught_up: if steps.steps >= marked -> if steps.steps > marked": (
            "words that count the step include its mark: their count is stored last"
        ),
    },
    "warmwatch.shared.verdict": {
        "stall_after_ns: median = int(STALL_MEDIANS * (facts.median_step_ns or 0)) -> "
        "median = int(STALL_MEDIANS * (facts.median_step_ns or 1))": "the least limit is a minute",
        "_slower_than_before: return False -> return None": "only what holds is named",
        "recently_touched: if max(compile.touched_steps) <= window -> "
        "if max(compile.touched_steps) < window": "only a cost: then none of them is later either",
    },
    "warmwatch_monitor.pipeline.runs": {
        "present: return [one for one in readings if one.start in starts or one.began > began] "
        "-> return [one for one in readings if one.start in starts or one.began >= began]": (
            _SAME_MOMENT
        ),
        "_made_rank: started = one.start == by.start and one.began > by.began -> "
        "started = one.start == by.start and one.began >= by.began": _SAME_MOMENT,
        f"_last_seen: {_SEEN.format(0)} -> {_SEEN.format(1)}": _BOOT,
        _AT_WORK.format(0, None): _NOBODY,
        _AT_WORK.format(1, 0): _BOOT,
        _AT_WORK.format(0, 1): _BOOT,
        f"{_PAUSE.format(0)} -> {_PAUSE.removeprefix('_run: ').format(None)}": _NOBODY,
        f"{_PAUSE.format(0)} -> {_PAUSE.removeprefix('_run: ').format(1)}": _BOOT,
        "_run: earlier.get(reading.folder, ()) -> earlier.get(reading.folder, None)": (
            "callers first check whether there are any"
        ),
        **{
            f"view({moment}): 0 -> 1": _BOOT
            for moment in ("peers_compiled_ns", "at_work_ns", "pause_ns")
        },
        "facts: 1000000000.0 -> 1000000001.0": _BILLIONTH,
    },
    "warmwatch_monitor.sources.listed": {
        "Feed.__init__: self._began_ns, self._unanswered = (0, False) -> "
        "self._began_ns, self._unanswered = (1, False)": "set before it is read",
        "Feed.current(awake_ns): 0 -> 1": _BOOT,
        "Feed.current: silence = (now_ns - max(outcome.at_ns, awake_ns)) / 1000000000.0 -> "
        "silence = (now_ns - max(outcome.at_ns, awake_ns)) / 1000000001.0": _BILLIONTH,
        "Feed.follow: spent = (self._clock.monotonic_ns() - began_ns) / 1000000000.0 -> "
        "spent = (self._clock.monotonic_ns() - began_ns) / 1000000001.0": _BILLIONTH,
    },
}
