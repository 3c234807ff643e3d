"""The list of hook points, in PyTorch and in other compilers: one file each.

A seam's ``install`` puts its hook in place and returns what it gives, how to undo it among that. It
raises ``HookPointAbsentError`` where this PyTorch does not have the seam, which it finds out by
looking before it touches anything: the others then give what they can, and ``warmwatch doctor``
names what is missing. Any other exception is an error of ours, and what was half done is undone.
Two entries install nothing of their own: they ask whether the records of compilations have what
came with later versions.

Those of ``POINTS`` are installed when PyTorch itself has imported Dynamo. Every hook that Dynamo
could trace is disabled for it: one guarded with ``is_compiling()`` would be traced away, unseen.
Those of ``OTHER_COMPILERS`` are installed when somebody has imported the module that they are in,
which may come before; Dynamo passes them over as soon as it is there (``Installed.functions``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.compilers import cpp_extension, triton_kernels
from warmwatch.hooks.dynamo import (
    callbacks,
    compilations,
    compile_calls,
    disabled,
    events,
    precompiled,
    recompile_limit,
    recompile_reasons,
)
from warmwatch.hooks.dynamo import compilations as code
from warmwatch.hooks.inductor import (
    async_modes,
    autotune_choices,
    cache_events,
    cudagraph_skips,
    kernels,
)
from warmwatch.hooks.points import Install
from warmwatch.hooks.training import batches, evaluations, memory, notebook_cells, optimizer, saving

POINTS: tuple[tuple[str, Install], ...] = (
    ("optimizer", optimizer.install),
    ("new_optimizers", optimizer.install_created),
    ("batches", batches.install),
    ("events", events.install),
    ("callbacks", callbacks.install),
    ("compilations", compilations.install),
    *compilations.REQUIRED,
    ("compiled_code", code.require),
    ("recompile_reasons", recompile_reasons.install),
    ("recompile_limit", recompile_limit.install),
    ("async_modes", async_modes.install),
    ("saving", saving.install),
    ("evaluations", evaluations.install),
    ("cells", notebook_cells.install),
    ("wrappers", compile_calls.install),
    ("disabled", disabled.install),
    ("kernels", kernels.install),
    ("choices", autotune_choices.install),
    ("memory", memory.install),
    ("cache_events", cache_events.install),
    ("cudagraph_skips", cudagraph_skips.install),
)

# Wherever the agent is made: what was compiled ahead of time needs no Dynamo.
AHEAD: tuple[tuple[str, Install], ...] = (("precompiled", precompiled.install),)

OTHER_COMPILERS: Mapping[str, tuple[str, Install]] = {
    "triton": ("triton", triton_kernels.install),
    "torch.utils.cpp_extension": ("cpp_extension", cpp_extension.install),
    precompiled.MODULES[0]: ("precompiled_aoti", precompiled.install_late),
    precompiled.MODULES[1]: ("precompiled_package", precompiled.install_late),
    precompiled.TENSORRT: ("precompiled_tensorrt", precompiled.install_late),
}


def hide(functions: Sequence[Callable[..., Any]]) -> None:
    """Have Dynamo pass over the frames of these, and of nothing that they call."""
    from torch._dynamo.decorators import skip

    for function in functions:
        quietly("hooks.hide", skip, function)
