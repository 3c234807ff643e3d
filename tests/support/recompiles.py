"""What a user reads about the recompiles of this process, and PyTorch's own counts of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from warmwatch.hooks.dynamo import events, recompile_reasons
from warmwatch.hooks.points import Fact, Listener
from warmwatch.hooks.redaction import recompile as redacted
from warmwatch.shared.advice import advice
from warmwatch.shared.reasons import plain


class Recorded(Listener):
    """Category, words and remedy of each recompile.

    ``dynamic``: as in ``torch.compile``.
    """

    dynamic: bool | None = None

    def __init__(self) -> None:
        self.said: list[tuple[str, str | None, str | None]] = []
        self._begun: Mapping[str, Any] = {}

    def begin(self, event: str, of: Any = None) -> None:
        if event == events.EVENT and of:
            self._begun = of

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        if fact == "recompile":
            text, category = redacted(values["reason"]), values["category"]
            of = self._begun.get("class"), values.get("parameter"), values.get("actual")
            words = plain(text, category, *of)
            anew = "anew" in self._begun
            remedy = advice(category, "forward", text, dynamic=self.dynamic, anew=anew)
            self.said.append((category, words, remedy))


@contextmanager
def recording() -> Iterator[Recorded]:
    import torch

    torch._dynamo.reset()
    listener = Recorded()
    installed = [events.install(listener), recompile_reasons.install(listener)]
    try:
        yield listener
    finally:
        for hook in installed:
            hook.uninstall()
        torch._dynamo.reset()


def counted() -> tuple[int, int]:
    """Graphs and graph breaks of this process, as PyTorch counts them."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
