"""The page's colours are apart for colour-blind users, and its text colours have contrast."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

import pytest

from warmwatch.frameworks.ipython import COLOURS, as_html

STATES = (
    *("starting", "compiling", "warming", "warm", "eager", "recompiling", "stalled"),
    *("finished", "failed", "lost"),
)
PHASES = (
    *("dynamo", "aot_autograd", "inductor", "kernel_compile", "autotune", "cudagraph"),
    *("cache_load", "other"),
)
LINES = tuple(f"line_{letter}" for letter in "abcdefgh")
TEXTS = ("text", "quiet", "link", "busy", "good", "bad", "calm", "stuck", "gone")
# linear RGB as each eye sees it: Machado, Oliveira and Fernandes 2009, severity 1
EYES = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
_WHITE = (0.9505, 1.0, 1.089)
_APART = 15.0  # CIE76 distance: 2.3 is just noticeable side by side
Vector = tuple[float, ...]


def colours(scheme: str) -> dict[str, str]:
    css = files("warmwatch_monitor").joinpath("page", "page.css").read_text()
    light, dark = css.split("@media (prefers-color-scheme: dark)")[:2]
    part = light if scheme == "light" else dark.partition("\n}")[0]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", part))


def linear(colour: str) -> Vector:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def times(matrix: tuple[Vector, ...], vector: Vector) -> Vector:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def lab(rgb: Vector) -> Vector:
    seen = (max(0.0, min(1.0, one)) for one in rgb)
    parts = [one / white for one, white in zip(times(_XYZ, tuple(seen)), _WHITE, strict=True)]
    x, y, z = (p ** (1 / 3) if p > 0.008856 else 7.787 * p + 16 / 116 for p in parts)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str, eye: str) -> float:
    first, second = (lab(times(EYES[eye], linear(colour))) for colour in (one, other))
    return float(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5)


def contrast(one: str, other: str) -> float:
    low, high = sorted(times(_XYZ, linear(colour))[1] for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_states_phases_and_lines_differ_for_every_type_of_colour_vision(
    scheme: str, eye: str
) -> None:
    known = colours(scheme)
    pairs = [*combinations(STATES, 2), *combinations(PHASES, 2)]
    lower = ("compiling", "recompiling", "warm")  # half of a lane, below a phase
    pairs += [(phase, state) for phase in PHASES for state in lower]
    pairs += combinations(LINES, 2)
    near = {
        pair: round(apart, 1)
        for pair in pairs
        if (apart := distance(known[pair[0]], known[pair[1]], eye)) < _APART
    }
    assert near == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_of_runs_are_legible_and_have_the_colour_of_no_state(scheme: str) -> None:
    known = colours(scheme)
    dim = {line for line in LINES if contrast(known[line], known["ground"]) < 3}
    pairs = [(line, state) for line in LINES for state in STATES]
    near = {pair for pair in pairs if distance(known[pair[0]], known[pair[1]], "normal") < 20}
    assert (dim, near) == (set(), set())


def test_a_notebook_shows_states_in_the_colours_of_the_page() -> None:
    known = colours("light")
    assert {state: known[state] for state in COLOURS} == COLOURS
    assert as_html("1 < 2", "warm").endswith('solid #009b6d; padding-left: .6em">1 &lt; 2</div>')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_legible(scheme: str) -> None:
    known = colours(scheme)
    grounds = (known["ground"], known["raised"])
    worst = {name: min(contrast(known[name], ground) for ground in grounds) for name in TEXTS}
    assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}
