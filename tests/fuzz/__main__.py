"""The long run: ``python -m fuzz [TARGET ...] [--seconds N | --random N | --file FILE]``.

Guided by coverage (atheris), each target for ``--seconds``; what it has learned lies in
``.cache/fuzz`` and is gone on from. ``--random`` gives records so many random inputs, 64 in each
look. What breaks a target is written to ``tests/fuzz/corpus/TARGET``: commit it with its mend.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MEMORY = "/dev/shm"
LONGEST = 400
_AT_ONCE = 64
_LEARNED = Path(__file__).parents[2] / ".cache/fuzz"


def main() -> int:
    arguments = _arguments()
    if arguments.guided:
        return guided(arguments.targets[0], arguments.seconds)
    if arguments.random:
        return at_random(arguments.random, arguments.seed)
    if arguments.file:
        with opened(arguments.targets[0]) as (_, fuzzed):
            fuzzed(arguments.file.read_bytes())
        return 0
    chosen = arguments.targets or names()
    return max([_apart(name, arguments.seconds) for name in chosen], default=0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--random", type=int, metavar="N", help="random records instead")
    parser.add_argument("--seed", type=int, default=0, help="of the random records (0)")
    parser.add_argument("--file", type=Path, help="one input, for the one target given")
    parser.add_argument("--guided", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def names() -> list[str]:
    from fuzz.targets import TARGETS

    return [target.name for target in TARGETS]


@contextmanager
def opened(name: str) -> Iterator[tuple[Path, object]]:
    """Where its corpus is, and what takes its bytes."""
    from fuzz.targets import CORPUS, TARGETS

    (target,) = (one for one in TARGETS if one.name == name)
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        target.open(Path(folder)) as fuzzed,
    ):
        yield CORPUS / name, fuzzed


def _apart(name: str, seconds: int) -> int:
    """In a process of its own, which ends with the engine."""
    print(f"-- {name}, {seconds} s", flush=True)
    command = [sys.executable, "-m", "fuzz", name, "--guided", "--seconds", str(seconds)]
    return subprocess.run(command, check=False).returncode


def guided(name: str, seconds: int) -> int:
    """Until it breaks, or its time is over. Ends the process."""
    import atheris

    with atheris.instrument_imports(include=["warmwatch", "warmwatch_monitor"]):
        import fuzz.targets  # noqa: F401 - what is to be covered is imported here
    learned = _LEARNED / name
    learned.mkdir(parents=True, exist_ok=True)
    with opened(name) as (corpus, fuzzed):
        corpus.mkdir(parents=True, exist_ok=True)
        options = [
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST}",
            f"-artifact_prefix={corpus}/",
            "-timeout=60",
            "-report_slow_units=60",  # what a busy machine takes 10 s for is no finding
            "-print_final_stats=1",
            "-verbosity=0",
        ]
        atheris.Setup([sys.argv[0], *options, str(learned), str(corpus)], fuzzed)
        atheris.Fuzz()
    return 0


def at_random(count: int, seed: int) -> int:
    """``count`` records, or until one breaks."""
    from fuzz.records import way
    from fuzz.targets import CORPUS

    made, began, found = random.Random(seed), time.monotonic(), 0
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, way(Path(folder), _AT_ONCE) as look:
        for done in range(0, count, _AT_ONCE):
            inputs = [made.randbytes(made.randrange(LONGEST)) for _ in range(_AT_ONCE)]
            try:
                look(inputs)
            except Exception as error:  # noqa: BLE001 - the input is searched next
                found += 1
                print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
                for culprit in _culprits(inputs):
                    saved = CORPUS / "records" / hashlib.sha256(culprit).hexdigest()[:16]
                    saved.parent.mkdir(parents=True, exist_ok=True)
                    saved.write_bytes(culprit)
                    print(f"  {saved}", flush=True)
                if found >= 10:
                    break
            if done % (_AT_ONCE * 250) == 0:
                print(f"{done + _AT_ONCE} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{done + _AT_ONCE} inputs in {time.monotonic() - began:.0f} s, {found} findings")
    return 1 if found else 0


def _culprits(inputs: Sequence[bytes]) -> Iterator[bytes]:
    """Those that break alone."""
    with opened("records") as (_, fuzzed):
        for data in inputs:
            try:
                fuzzed(data)  # type: ignore[operator]
            except Exception:  # noqa: BLE001 - it was printed before
                yield data
                return


if __name__ == "__main__":
    raise SystemExit(main())
