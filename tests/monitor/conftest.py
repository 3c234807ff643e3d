"""The GPU source over a stand-in for NVIDIA's library, loaded into the tests' own process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.nvml import Standin
from support.nvml.clock import Time
from warmwatch_monitor.sources.nvml.source import NvmlSource


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: Standin) -> Iterator[Standin]:
    library.load()
    yield library
    library.remove_driver()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def source(nvml: Standin, time: Time) -> Iterator[NvmlSource]:
    source = NvmlSource(clock=time.clock())
    yield source
    nvml.remove_driver(0)
    source._close()
