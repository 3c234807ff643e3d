"""What differs between a run without the agent and one with it."""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from guest.headers import Training
from guest.runs import ATTACH, Seen, run
from support.torch_versions import VERSION

# What differs between two runs without the agent, too, in all but the standard output. Applied in
# this order.
_NORMALISED = [
    (re.compile(pattern), text)
    for pattern, text in (
        (r"^((?:\[rank\d+\]:)?[VIWEC])\d{4} \d\d:\d\d:\d\d\.\d+ \S+ ", r"\1 "),  # a log line's time
        (r"[0-9a-f]{8}([-_])[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", "<uuid>"),
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?", "<time>"),
        (r"/tmp[a-z0-9_]{8}\b", "/<temporary>"),
        (r"0x[0-9a-f]+", "<address>"),
        (r"(?<![\d.])\d{9,}(?!\d)", "<id>"),  # of objects
        (r"\b\d+(\.\d+)?(e-?\d+)? ?(s|us|ms|seconds|microseconds)\b", "<duration>"),
        (
            r"\b(duration|latency|time|took|overhead)\w*([=: ]+)\d+(\.\d+)?(e-?\d+)?",
            r"\1\2<duration>",
        ),
        (r"(\] [\w.<>]+) {2,}[\d., ]+$", r"\1 <durations>"),  # of the table at the exit
        (r"((?:^|\s)[\w.<>]+\s*[|,]\s*)\d+\.\d{4}(, \d+\.\d{4})*", r"\1<durations>"),
    )
]


if VERSION == "2.6":  # of several lines of code with one guard, it writes any one
    _NORMALISED.append((re.compile(r"(\[__guards\] .*?) +# .*"), r"\1"))
    # a kernel's name is a hash of code that names a header in the cache directory
    _NORMALISED.append((re.compile(r"\bc[a-z2-7]{51}\b"), "<kernel>"))

MOST_LINES = 12
_EXACT = ("standard output", "random state", "random state of torch")
_LAST = "logs, warnings and errors"  # the longest, and rarely the plainest


@dataclass(frozen=True, slots=True)
class Compared:
    """``differences``: readable lines, none if the agent changed nothing."""

    training: Training
    differences: list[str]

    @property
    def as_expected(self) -> bool:
        """No difference, or one that a known fault explains."""
        return not self.differences or bool(self.training.fault)


def compared(
    training: Training, attach: Sequence[str] = ATTACH, *, most: int = MOST_LINES
) -> Compared:
    """Run the training without and with the agent, and compare; ``most`` lines of a subject."""
    place = Path(tempfile.mkdtemp(prefix="warmwatch-guest-"))
    try:
        without = run(training, place / "without", agent=False)
        beside = run(training, place / "with", agent=True, attach=attach)
        misfits = _misfits(training, without, beside)
        return Compared(training, [*misfits, *_differences(without, beside, most)])
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _misfits(training: Training, without: Seen, beside: Seen) -> Iterator[str]:
    """What shows that a training does not do what it is for, and what the record has wrong."""
    if set(without.exits) != {training.exit}:
        yield f"it exits with {without.exits} without the agent, not with {training.exit}:"
        for name, lines in without.sections.items():
            if "logs" in name:
                yield from (f"  {line}" for line in lines[-25:])
    for name, lines in without.sections.items():
        if name.endswith("observer") or (name.endswith("no report") and not training.unseen):
            yield from (name, *lines)
    if training.steps is not None and beside.steps != training.steps:
        yield f"steps: the training makes {training.steps}, the agent counts {beside.steps}"
    yield from (f"error of the agent: {line}" for line in beside.errors)


def _differences(without: Seen, beside: Seen, most: int) -> Iterator[str]:
    names = {**without.sections, **beside.sections}
    # those of both in either: on a machine with small pids, one may equal a number of the output
    pids = (*without.pids, *beside.pids)
    for name in sorted(names, key=lambda one: one.endswith(_LAST)):
        old, new = (_normal(one, name, pids) for one in (without, beside))
        changed = [
            line
            for line in difflib.unified_diff(old, new, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]
        if changed:
            yield f"{name}: {len(changed)} lines (- without the agent, + with it)"
            yield from (f"  {line}" for line in changed[:most])
            if len(changed) > most:
                yield f"  ... {len(changed) - most} more"


def _normal(seen: Seen, section: str, pids: Sequence[int]) -> list[str]:
    lines = []
    for line in seen.sections.get(section, ()):
        if "CompilationMetrics(" in line:
            continue  # one line of times, texts of a config, and what `compilations` has by name
        line = " / ".join(line.replace(str(seen.folder), "<folder>").splitlines())
        # the state of a generator is numbers, and one may equal a pid
        for pid in () if "random state" in section else pids:
            line = re.sub(rf"(?<!\.py:)\b{pid}\b", "<pid>", line)  # nor the number of a line
        for pattern, text in () if section.endswith(_EXACT) else _NORMALISED:
            line = pattern.sub(text, line)
        lines.append(line)
    return lines
