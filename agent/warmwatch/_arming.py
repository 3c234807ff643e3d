"""Which hooks are put in place as PyTorch, or another compiler, comes; hidden from Dynamo."""

from __future__ import annotations

from warmwatch import _brackets as brackets
from warmwatch._guard import warn_once
from warmwatch._imports import FRAMES, is_imported
from warmwatch._seams import Hooks, Listener


def arm(hooks: Hooks, listener: Listener, mode: str | None) -> None:
    """Dynamo is there: install all that it is heard by."""
    from warmwatch.hooks import SEAMS, hide

    hooks.install(SEAMS, listener)
    if mode is not None:
        _impose(mode, hooks, listener)
    hide([*hooks.functions(), *FRAMES])
    brackets.dynamo_came()


def arm_ahead(hooks: Hooks, listener: Listener) -> None:
    """Look for code that was compiled ahead of time, once PyTorch is there."""
    if is_imported("torch"):
        from warmwatch.hooks import AHEAD

        hooks.install(AHEAD, listener)


def arm_beside(hooks: Hooks, listener: Listener, module: str) -> None:
    """Another compiler is there: listen to it."""
    from warmwatch.hooks import BESIDE, hide

    before = set(hooks.functions())
    hooks.install((BESIDE[module],), listener)
    if is_imported("torch._dynamo"):
        hide([one for one in hooks.functions() if one not in before])


def _impose(mode: str, hooks: Hooks, listener: Listener) -> None:
    """Have everything compiled in the mode that ``warmwatch modes`` asks for."""
    from warmwatch.hooks.imposed_mode import imposing

    hooks.install((("imposed_mode", imposing(mode)),), listener)
    if "imposed_mode" in hooks.missing:
        warn_once(f"this PyTorch has no place where the mode {mode!r} can be imposed")
