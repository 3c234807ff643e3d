"""Fixtures that every kind of test may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH

# Commands that a test calls in this process do not look for what other tests train meanwhile.
os.environ["WARMWATCH_OBSERVE"] = "off"


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Path]:
    """A record directory. An error that an agent swallowed while writing to it fails the test."""
    directory = tmp_path / "records"
    directory.mkdir()
    yield directory
    for folder in slots.folders(directory):
        slot = slots.read(folder)
        assert slot.compile.agent_errors == 0, slots.errors(folder)
        assert slot.identity.missing == TORCH.missing
