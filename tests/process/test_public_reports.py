"""Causes and remedies of trainings that people reported in public issues.

Each file of ``reports/`` is the smallest training of one report, with what PyTorch counts in it and
what the answer must name. With the remedy applied, the fault must be gone by PyTorch's own counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.public_reports import PublicReport, answer, every, wrong


@pytest.mark.long
@pytest.mark.parametrize("reported", every(), ids=lambda one: one.name)
def test_the_cause_is_named_and_the_remedy_cures(reported: PublicReport, records: Path) -> None:
    if not reported.happens:
        pytest.skip("it does not happen with this PyTorch")
    assert wrong(reported, answer(reported, records)) == []
