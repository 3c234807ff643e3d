"""Every input: the stored failures, and as many generated ones as a run of the tests can afford.

The examples are always the same ones (``derandomize``). ``make fuzz`` looks for new ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, Fuzzed, Target

pytestmark = pytest.mark.slow

SHORTEST, LONGEST = 60, 400  # hypothesis makes short ones where it may


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Target, Fuzzed]]:
    target: Target = request.param
    with target.open(tmp_path_factory.mktemp(target.name)) as fuzzed:
        yield target, fuzzed


@pytest.mark.first
def test_each_input_is_accepted_or_cleanly_refused(opened: tuple[Target, Fuzzed]) -> None:
    target, fuzzed = opened
    for file in target.corpus():  # once it broke the target
        try:
            fuzzed(file.read_bytes())
        except BaseException as error:
            raise AssertionError(f"python -m fuzz {target.name} {file}") from error

    @settings(
        max_examples=target.examples,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=SHORTEST, max_size=LONGEST))
    def holds(data: bytes) -> None:
        fuzzed(data)

    holds()
