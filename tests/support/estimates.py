"""``python -m support.estimates FOLDER...`` (in ``tests/``): accuracy of the estimated time left.

Replays every record below the folders. At each half second of a first warm-up it computes the
estimate from the last five records of the same program that began before, as the monitor does, and
compares it with the time that really was left. Records are of the same program if their run's name
and their first compiled function are. ``--write`` writes the section of the accuracy page.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.accuracy import DOCUMENT, ESTIMATES
from warmwatch.shared.record import JOURNAL
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.history.earlier_runs import MOST
from warmwatch_monitor.model.figures import Done, EarlierWarmup
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.pipeline import estimates
from warmwatch_monitor.sources.records.parsed_journal import parse_journal

COMMAND = "cd tests && PYTHONPATH=. python -m support.estimates --write FOLDER..."
STEP_NS = 5 * 10**8
FACTOR = 1.5
COUNTS = (1, 2, 3)  # earlier runs that must agree
WARM_STEPS = 3


@dataclass(frozen=True, slots=True)
class Warmup:
    """The first warm-up of a record."""

    program: object
    compilations: tuple[Compilation, ...]

    @property
    def began_ns(self) -> int:
        return min(map(begin_ns, self.compilations))

    @property
    def ended_ns(self) -> int:
        return max(one.at_ns for one in self.compilations)


def begin_ns(one: Compilation) -> int:
    return one.at_ns - round((one.seconds or 0.0) * 1e9)


def found_in(folders: Iterable[Path]) -> list[list[Warmup]]:
    """The warm-ups of each program, in order. A copy of a record counts once."""
    known: dict[int, Warmup] = {}
    for path in (path for folder in folders for path in folder.rglob(JOURNAL)):
        name = path.parent.name.partition("-r")[0]
        if one := _first(name, parse_journal(str(path.parent)).compilations):
            before = known.get(one.began_ns)
            if before is None or len(before.compilations) < len(one.compilations):
                known[one.began_ns] = one
    programs = defaultdict(list)
    for _, one in sorted(known.items()):
        programs[one.program].append(one)
    return list(programs.values())


def _first(name: str, parsed: Iterable[Compilation]) -> Warmup | None:
    """The compilations up to the first pause of as many steps as make a rank warm."""
    taken: list[Compilation] = []
    last = None
    for one in sorted(parsed, key=lambda one: one.at_ns):
        if None not in (last, one.step) and one.step - last > WARM_STEPS:  # type: ignore[operator]
            break
        taken.append(one)
        last = one.step
    if not taken:
        return None
    first = taken[0]
    return Warmup((name, first.file, first.name, first.code), tuple(taken))


def earlier(one: Warmup) -> EarlierWarmup:
    return EarlierWarmup(
        seconds=(one.ended_ns - one.began_ns) / 1e9,
        phase_seconds=_phases(one.compilations),
        compiled=tuple(copied(each, Done) for each in one.compilations),
    )


def _phases(compilations: Iterable[Compilation]) -> dict[str, float]:
    spent: dict[str, float] = defaultdict(float)
    for one in compilations:
        for name, seconds in one.cost.phase_seconds.items():
            spent[name] += seconds
    return dict(spent)


def polls(one: Warmup) -> Iterator[tuple[estimates.Now, float]]:
    """What a monitor knows while something compiles, and the time left then."""
    for at_ns in range(one.began_ns + STEP_NS // 2, one.ended_ns, STEP_NS):
        ended = [each for each in one.compilations if each.at_ns <= at_ns]
        under = [each for each in one.compilations if begin_ns(each) <= at_ns < each.at_ns]
        if not under:
            continue
        outer = min(under, key=begin_ns)
        since = max([begin_ns(outer), *(each.at_ns for each in ended)])
        backward = outer.kind == "backward"
        now = estimates.Now(
            seconds=(at_ns - one.began_ns) / 1e9,
            activity_seconds=(at_ns - since) / 1e9,
            phase_seconds={**_phases(ended), "underway": (at_ns - since) / 1e9},
            compiled=tuple(copied(each, Done) for each in ended),
            underway=Done(kind="backward") if backward else Done(name=outer.name, code=outer.code),
        )
        yield now, (one.ended_ns - at_ns) / 1e9


def ratios(programs: Iterable[list[Warmup]]) -> tuple[int, list[list[float]]]:
    """The number of polls, and each shown estimate by the time that was left, by program."""
    count, found = 0, []
    for warmups in programs:
        shown = []
        for place, one in enumerate(warmups):
            before = [earlier(each) for each in reversed(warmups[:place])][:MOST]
            for now, left in polls(one) if before else ():
                count += 1
                known = estimates.estimate(now, before)
                if known is not None and known.left_seconds is not None:
                    shown.append(known.left_seconds / left)
        found.append(shown)
    return count, [shown for shown in found if shown]


def row(programs: list[list[Warmup]], count: int) -> str:
    """A line of the table, with so many earlier runs that must agree."""
    used, estimates._LEAST = estimates._LEAST, count
    try:
        polled, found = ratios(programs)
    finally:
        estimates._LEAST = used
    every = sorted(one for shown in found for one in shown)
    if len(every) < 2:
        return f"| {count} | {len(every)} of {polled} | {len(found)} | - | - |"
    right = sum(1 / FACTOR <= one <= FACTOR for one in every) / len(every)
    deciles = statistics.quantiles(every, n=10)
    spread = ", ".join(f"{deciles[place]:.2f}" for place in (0, 4, 8))
    return f"| {count} | {len(every)} of {polled} | {len(found)} | {100 * right:.0f} % | {spread} |"


_HEAD = (
    "earlier runs that must agree",
    "polls with an estimate",
    "programs",
    f"within a factor of {FACTOR}",
    "10th, 50th, 90th percentile",
)


def table(programs: list[list[Warmup]]) -> str:
    again = [one for one in programs if len(one) > 1]
    return "\n".join(
        [
            f"{sum(map(len, again))} warm-ups of {len(again)} programs:",
            "",
            f"| {' | '.join(_HEAD)} |",
            "|---" * len(_HEAD) + "|",
            *(row(again, count) for count in COUNTS),
        ]
    )


def section(programs: list[list[Warmup]]) -> str:
    """The part of the document."""
    return f"""{ESTIMATES}

## How right the estimate of the time left is

Written by `{COMMAND}`.
It replays records of trainings. At each half second of a first warm-up, it divides the estimate
by the time that was left. The estimate is from the last five records of the same name whose first
function is the same. Warmwatch shows one if {estimates._LEAST} earlier runs agree within a
factor of {estimates._AGREE}. The records are of three trainings that were started again and again,
with cold caches and beside each other, on an H200 with 16 cores (PyTorch 2.11). Before, in 154
warm-ups of 45 programs that were edited or had other caches in between (2 CPUs, a load of 1 to 22),
three earlier runs agreed at one of 3,511 polls. With one or two, 22 and 37 % would have been right.

{table(programs)}
"""


def main(arguments: list[str]) -> int:
    folders = [Path(one) for one in arguments if one != "--write"]
    programs = found_in(folders)
    if "--write" in arguments:
        before = DOCUMENT.read_text().partition(ESTIMATES)[0].rstrip("\n")
        DOCUMENT.write_text(f"{before}\n\n{section(programs)}")
    print(table(programs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
