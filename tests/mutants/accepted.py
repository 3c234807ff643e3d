"""Changes that may be survived, each with its reason. One that is survived no more is taken out."""

from __future__ import annotations

_BOOT = "a nanosecond after the boot is as long ago as the boot itself"
_BILLIONTH = "a billionth more or less is far below what the figure is exact to"

_FIPS = "only an interpreter that allows none but approved digests would refuse it"
_SEALED = "hashlib.blake2b(sealed, digest_size=8, usedforsecurity=False).digest()"

ACCEPTED: dict[str, dict[str, str]] = {
    "warmwatch.record.lock": {
        "module: LOCK_QUESTION = _FLOCK.pack(F_RDLCK, 0, 0, 0, 0) -> "
        "LOCK_QUESTION = _FLOCK.pack(F_RDLCK, 0, 0, 0, 1)": "the kernel writes the pid, only",
    },
    "warmwatch.record.seal": {
        "unseal: raise TornError('torn record: the checksum of a block is wrong') -> "
        "raise TornError(None)": "caught: what is said is that of both places",
        "unseal: raise TornError('torn record: the checksum of a block is wrong') -> "
        "raise TornError('')": "caught: what is said is that of both places",
        **{
            f"_checksum: return {_SEALED} -> return {_SEALED.replace(before, after)}": _FIPS
            for before, after in (
                (", usedforsecurity=False", ""),
                ("usedforsecurity=False", "usedforsecurity=None"),
                ("usedforsecurity=False", "usedforsecurity=True"),
            )
        },
    },
    "warmwatch.verdict": {
        "Facts: longest_step_ns: int = 0 -> longest_step_ns: int = 1": _BOOT,
        "Facts: peers_compiled_ns: int = 0 -> peers_compiled_ns: int = 1": _BOOT,
        "Facts: last_batch_ns: int = 0 -> last_batch_ns: int = 1": _BOOT,
        "Facts: working_ns: int = 0 -> working_ns: int = 1": _BOOT,
        "stall_after_ns: median = int(STALL_MEDIANS * (facts.median_step_ns or 0)) -> "
        "median = int(STALL_MEDIANS * (facts.median_step_ns or 1))": "the least limit is a minute",
    },
    "warmwatch_monitor.runs": {
        "present: return [one for one in readings if _start(one) in starts or one.began > began] "
        "-> return [one for one in readings if _start(one) in starts or one.began >= began]": (
            "two processes do not attach in the same nanosecond"
        ),
        "_helps: kind, pid, *_ = (*identity.launch.split(':'), '') -> "
        "kind, pid, *_ = (*identity.launch.split(':'), 'XX')": "neither is a pid",
        "_run: at_work_ns = max((working.get(one.folder, 0) for one in readings if one.alive), "
        "default=0) -> at_work_ns = max((working.get(one.folder, 0) for one in readings if "
        "one.alive), default=None)": "where nobody lives nobody is asked for stalls",
        "_run: at_work_ns = max((working.get(one.folder, 0) for one in readings if one.alive), "
        "default=0) -> at_work_ns = max((working.get(one.folder, 1) for one in readings if "
        "one.alive), default=0)": _BOOT,
        "_run: at_work_ns = max((working.get(one.folder, 0) for one in readings if one.alive), "
        "default=0) -> at_work_ns = max((working.get(one.folder, 0) for one in readings if "
        "one.alive), default=1)": _BOOT,
        "view: 0 -> 1": _BOOT,
        "facts: 1000000000.0 -> 1000000001.0": _BILLIONTH,
    },
    "warmwatch_monitor.feed": {
        "Feed.__init__: self._began_ns = 0 -> self._began_ns = None": "set before it is read",
        "Feed.__init__: self._began_ns = 0 -> self._began_ns = 1": "set before it is read",
        "Feed.current: def current(self, now_ns: int, awake_ns: int=0) -> tuple[T | None, "
        "SourceHealth] -> def current(self, now_ns: int, awake_ns: int=1) -> tuple[T | None, "
        "SourceHealth]": _BOOT,
        "Feed.current: silence = (now_ns - max(outcome.at_ns, awake_ns)) / 1000000000.0 -> "
        "silence = (now_ns - max(outcome.at_ns, awake_ns)) / 1000000001.0": _BILLIONTH,
        "Feed.follow: spent = (self._clock.monotonic_ns() - began_ns) / 1000000000.0 -> "
        "spent = (self._clock.monotonic_ns() - began_ns) / 1000000001.0": _BILLIONTH,
    },
}
