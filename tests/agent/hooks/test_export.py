"""What the hook of ``torch.export`` reports, of a real export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from warmwatch.hooks.compilers import export
from warmwatch.hooks.phases import CUSTOM
from warmwatch.hooks.points import Fact, Listener
from warmwatch.shared.values import EXPORT, STRICT_EXPORT

torch = pytest.importorskip("torch")


class Recorded(Listener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        self.calls.append((f"begin {event}", (of or {})["name"]))

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        assert fact == "compilation"
        assert values["seconds"] > 0
        self.calls.append((values["kind"], values.get("failure")))

    def end(self, event: str) -> None:
        self.calls.append(("end", event))


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    from torch.export import _trace

    original, listener = _trace._export, Recorded()
    installed = export.install(listener)
    yield listener
    assert installed.uninstall is not None
    installed.uninstall()
    assert _trace._export is original


@pytest.mark.parametrize(("strict", "name"), [(False, EXPORT), (True, STRICT_EXPORT)])
def test_an_export_is_an_activity_from_its_begin_to_its_end(
    recorded: Recorded, *, strict: bool, name: str
) -> None:
    exported = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),), strict=strict)
    assert exported.module()(torch.ones(3, 2)).shape == (3, 1)
    assert recorded.calls == [(f"begin {CUSTOM}", name), (CUSTOM, None), ("end", CUSTOM)]


def test_an_export_that_fails_raises_as_before_and_is_reported(recorded: Recorded) -> None:
    class Failing(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:  # noqa: ARG002
            raise LookupError("its own")

    with pytest.raises(LookupError, match="its own"):
        torch.export.export(Failing(), (torch.ones(2),), strict=False)
    failed = (CUSTOM, "LookupError")
    assert recorded.calls == [(f"begin {CUSTOM}", EXPORT), failed, ("end", CUSTOM)]
