"""How many parameters the training's optimizers hold between them: an estimate of the model's size.

Read once for each optimizer, and only what a tensor keeps of itself, its size: nothing waits for a
GPU. A parameter that is a shard (FSDP1's, flat or original) or packed (4-bit weights) does not tell
its model's size, and parameters that are frozen are in no optimizer: where the compiler met clearly
more of them than the optimizers hold, or one does not tell, nothing is known.
"""

from __future__ import annotations

from typing import Any

from warmwatch._guard import report

_TELL_NOTHING = frozenset({"FlatParameter", "Params4bit", "Int8Params"})
_FLATTENED = "_fsdp_flattened"  # FSDP1 marks with it what it shards: their type is ``Parameter``
_MOST = 1_000_000  # parameters looked at
_ABOVE = 1.1


class Parameters:
    """Adds up what it is shown. Used where a step is decided about, on the thread of the step."""

    def __init__(self) -> None:
        self._met: set[int] = set()
        self._held = 0
        self._compiled = 0
        self._untold = False

    def met(self, optimizer: Any, replaces: bool = False) -> None:
        """An optimizer is seen for the first time, or steps another group of its parameters.

        ``replaces``: it leads from now on. If it shares no parameter with the others, it may train
        another model, so the size is unknown from here on.
        """
        try:
            if not self._untold:
                self._untold = replaces and self._is_disjoint(optimizer)
                self._add(optimizer)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            self._untold = True
            report("parameters", error)

    def _is_disjoint(self, optimizer: Any) -> bool:
        groups = optimizer.param_groups
        return bool(self._met) and not any(
            id(parameter) in self._met for group in groups for parameter in group["params"]
        )

    def _add(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._met:
                    continue
                if _tells_nothing(parameter) or len(self._met) >= _MOST:
                    self._untold = True
                    return
                self._met.add(id(parameter))
                self._held += int(parameter.numel())

    def compiled(self, parameters: int) -> None:
        """A compiled graph has so many of them, frozen ones included."""
        self._compiled = max(self._compiled, parameters)

    @property
    def seen(self) -> int | None:
        """The model's parameters; ``None`` where that is not known."""
        if self._untold or not self._held or self._compiled > _ABOVE * self._held:
            return None
        return self._held


def _tells_nothing(parameter: Any) -> bool:
    return type(parameter).__name__ in _TELL_NOTHING or getattr(parameter, _FLATTENED, False)
