"""Number of model parameters, from optimizers and compiled graphs."""

from __future__ import annotations

import sys
from typing import Any

from warmwatch._guard import report

# Types whose ``numel()`` is not the number of model parameters: sharded, packed or quantized.
_OPAQUE = frozenset({"FlatParameter", "Params4bit", "Int8Params"})
_FLATTENED = "_fsdp_flattened"  # set by FSDP1 on sharded parameters of the type ``Parameter``
_MOST_COUNTED = 1_000_000  # parameter tensors; with more, the number is unknown
# A compiled graph with more than this many times the optimizers' parameters has frozen ones.
_TIMES_COUNTED = 1.1


class Parameters:
    """Counts model parameters. The step source calls it, on the thread of the step."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        self._held = 0
        self._compiled = 0
        self._unknown = False

    def add_optimizer(self, optimizer: Any, replaces: bool = False) -> None:
        """Count an optimizer's parameters: at its first step, or for another parameter group.

        ``replaces``: its calls are the steps from now on. If it shares no parameter with the
        others, it may train another model. Then the number stays unknown.
        """
        try:
            if not self._unknown:
                self._unknown = replaces and self._is_disjoint(optimizer)
                self._count(optimizer)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            self._unknown = True
            report("parameters", error)

    def _is_disjoint(self, optimizer: Any) -> bool:
        groups = optimizer.param_groups
        return bool(self._counted) and not any(
            id(parameter) in self._counted for group in groups for parameter in group["params"]
        )

    def _count(self, optimizer: Any) -> None:
        # a tensor subclass or a mode of the program would see each call
        with sys.modules["torch"]._C.DisableTorchFunction():
            for parameter in (each for group in optimizer.param_groups for each in group["params"]):
                if id(parameter) in self._counted:
                    continue
                if _is_opaque(parameter) or len(self._counted) >= _MOST_COUNTED:
                    self._unknown = True
                    return
                self._counted.add(id(parameter))
                self._held += int(parameter.numel())

    def add_graph(self, parameters: int) -> None:
        """Note the number of parameters of a compiled graph, frozen ones included."""
        self._compiled = max(self._compiled, parameters)

    @property
    def total(self) -> int | None:
        """Number of the model's parameters; ``None`` if unknown."""
        if self._unknown or not self._held or self._compiled > _TIMES_COUNTED * self._held:
            return None
        return self._held


def _is_opaque(parameter: Any) -> bool:
    return type(parameter).__name__ in _OPAQUE or getattr(parameter, _FLATTENED, False)
