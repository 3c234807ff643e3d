"""Bytes as decisions, so that an engine that generates bytes generates inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# What a parser, a sum or a clock may trip over.
NUMBERS = (
    *(0, 1, 2, 3, 5, 8, 255, 256, 10**7, 10**7 + 1, 10**9),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**53 + 1, 2**59 - 1, 2**59, 2**62 - 1, 2**62),
    *(2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1),
)
TEXTS = (
    *(
        "",
        "gpt2",
        "a/b",
        "..",
        ".",
        "@",
        "gpt2@root",
        "x" * 200,
        "x" * 201,
        "\n",
        "\x00",
        "\x1b]0;t",
    ),
    *(
        "\u202e",
        "\ud800",
        "\u2028",
        "'\"\\",
        "{}",
        "%s",
        "[/]",
        "é",
        "٣",
        "GPU-1",
        "MIG-1",
        "forward",
    ),
    *(
        "process:1",
        "slurm:1.0",
        "shape",
        "9" * 30,
        "-1",
        "1e999",
        "NaN",
        "\x7f",
        "#",
        "=",
        "&",
        ",",
    ),
)
# The numbers of JSON and YAML that no number of Python's is written as.
LITERALS = (
    *(b"null", b"true", b"false", b"0", b"-1", b"1.5", b"-0.0", b"1e999", b"-1e999", b"1e300"),
    *(
        b"NaN",
        b"Infinity",
        b"9" * 400,
        b"9" * 5000,
        b"[]",
        b"{}",
        b'""',
        b"[" * 3000,
        b'{"a":' * 500,
    ),
    *(
        b"9223372036854775807",
        b"9223372036854775808",
        b"1e-400",
        b"0.1",
        b'"\\ud800"',
        b"2001-99-99",
    ),
)


class Choices:
    """Reads decisions off ``data``; where it is used up, each is the first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def over(self) -> bool:
        """Whether all bytes are used up."""
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes, at most ``count``."""
        self._at, begin = self._at + count, self._at
        return self._data[begin : self._at]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data))

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` - 1."""
        width = 1 if limit <= 256 else 3
        return int.from_bytes(self.take(width), "little") % limit

    def pick(self, values: Sequence[T]) -> T:
        """One of ``values``."""
        return values[self.below(len(values))]

    def bytes(self) -> bytes:
        """Up to 255 of them."""
        return self.take(self.below(256))

    def number(self) -> int:
        """One of 64 bits, an awkward one more often than not."""
        return int.from_bytes(self.take(8), "little") if self.below(4) == 3 else self.pick(NUMBERS)

    def text(self) -> str:
        """Any, an awkward one more often than not."""
        if self.below(4) < 3:
            return self.pick(TEXTS)
        return self.bytes().decode("utf-8", "surrogateescape")

    def literal(self) -> bytes:
        """A value as it stands in a file of JSON."""
        kind = self.below(4)
        if kind == 0:
            return self.pick(LITERALS)
        if kind == 1:
            return b"%d" % self.number()
        quoted = self.text().translate({ord('"'): '\\"', ord("\\"): "\\\\"})
        text = b'"%b"' % quoted.encode("utf-8", "surrogatepass")
        return text if kind == 2 else b"[%b]" % text
