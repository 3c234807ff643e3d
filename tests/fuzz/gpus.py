"""What NVML answers, through the real bindings and the stand-in library, to ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz import records
from fuzz.choices import Choices
from support import builders
from support.nvml import H100, Standin, board
from support.nvml.clock import Time
from warmwatch_monitor.base.errors import SourceError
from warmwatch_monitor.sources.nvml.source import NvmlSource

_FIELDS = (*H100, "mig", "mig0/uuid", "mig0/memory", "mig0/gpm", "lost")
_CODES = tuple(f"!{code}" for code in (1, 2, 3, 4, 5, 6, 7, 9, 10, 13, 15, 17, 18, 25, 999))
_NUMBERS = (
    *("0", "1", "2", "100", "101", "4294967295", "4294967294", "18446744073709551615"),
    *(
        "-1",
        "1 2 3 4 5 6",
        "4711 1000 12 18446744073709551615",
        "nan nan nan",
        "inf 0 0",
        "1e308 -1 5",
    ),
)
_TEXTS = (
    "",
    "x" * 180,
    "NVIDIA H100",
    "GPU-",
    "MIG-1",
    "\u00e9",
    '"\\\n',
    "%n",
    "00000000:1B:00.0",
)


class Gpus:
    """A driver whose values depend on the input."""

    def __init__(self, folder: Path) -> None:
        self._library = Standin(folder)
        self._library.load()
        self._time = Time()
        self._source = NvmlSource(clock=self._time.clock())

    def close(self) -> None:
        self._library.remove_driver()
        try:
            self._source.read()
        except SourceError:
            return

    def __call__(self, data: bytes) -> None:
        choices = Choices(data)
        for _ in range(2):
            self._say(choices)
            try:
                gpus = self._source.read()
            except SourceError as error:
                assert str(error).isprintable(), error
            else:
                records.rendered(
                    builders.snapshot(builders.view(builders.WARM, gpus=gpus), gpus=gpus)
                )
            self._time.passes(choices.pick((0.2, 31.0)))

    def _say(self, choices: Choices) -> None:
        devices = [board(number) for number in range(choices.below(3))]
        for _ in range(choices.below(8) if devices else 0):
            value = _value(choices)
            choices.pick(devices)[choices.pick(_FIELDS)] = value
        more = {"init": choices.pick(("9", "18", "999"))} if choices.below(16) == 15 else {}
        self._library.say(*devices, driver=choices.pick(("580.1", *_TEXTS)), **more)


def _value(choices: Choices) -> str:
    kind = choices.below(4)
    if kind == 3:
        return str(choices.number())
    value = choices.pick((_CODES, _NUMBERS, _TEXTS)[kind])
    return value.replace("\n", " ")


@contextmanager
def gpus(folder: Path) -> Iterator[Gpus]:
    made = Gpus(folder)
    try:
        yield made
    finally:
        made.close()
