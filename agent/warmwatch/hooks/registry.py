"""The list of hook points, in PyTorch and in other compilers: one file each.

The ``install`` function of a hook point installs its hook and returns an ``Installed``. It looks
the hook point up before it changes anything, and raises ``HookPointAbsentError`` if this PyTorch
lacks it. The other hooks then still work, and ``warmwatch doctor`` names what is missing. Any other
exception is an error of the agent, and a partial installation is undone. Two entries install
nothing: they check whether compilation records have fields of later versions.

The files here import PyTorch inside their functions: the agent loads them for other compilers too.

``POINTS`` are installed once PyTorch itself has imported Dynamo. ``OTHER_COMPILERS`` are installed
once their module was imported, which may come earlier. Dynamo traces no hook (``Replaced``): one
that is guarded with ``is_compiling()`` would be traced away.
"""

from __future__ import annotations

from collections.abc import Mapping

from warmwatch.hooks.compilers import child_processes, cpp_extension, export, triton_kernels
from warmwatch.hooks.dynamo import (
    compilations,
    compile_calls,
    disabled,
    events,
    fallbacks,
    originals,
    precompiled,
    recompile_reasons,
)
from warmwatch.hooks.inductor import (
    autotune_choices,
    cache_events,
    cudagraph_skips,
    flops,
    kernels,
    spills,
)
from warmwatch.hooks.points import Install
from warmwatch.hooks.training import (
    batches,
    compiled_steps,
    evaluations,
    memory,
    notebook_cells,
    optimizer,
    saving,
)

POINTS: tuple[tuple[str, Install], ...] = (
    ("originals", originals.install),
    ("optimizer", optimizer.install),
    ("new_optimizers", optimizer.install_created),
    ("compiled_steps", compiled_steps.install),
    ("batches", batches.install),
    ("events", events.install),
    ("callbacks", events.install_callbacks),
    ("compilations", compilations.install),
    *compilations.REQUIRED,
    ("compiled_code", events.require),
    ("recompile_reasons", recompile_reasons.install),
    ("recompile_limit", fallbacks.install),
    ("flex_attention", fallbacks.check_flex_attention),
    ("async_modes", kernels.install_async_modes),
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
    ("flops", flops.install),
    ("spills", spills.install),
    ("child_processes", child_processes.install),
)

# Installed with the agent: code that was compiled ahead of time needs no Dynamo.
AHEAD: tuple[tuple[str, Install], ...] = (("precompiled", precompiled.install),)

OTHER_COMPILERS: Mapping[str, tuple[str, Install]] = {
    "triton": ("triton", triton_kernels.install),
    "torch.utils.cpp_extension": ("cpp_extension", cpp_extension.install),
    export.MODULE: ("export", export.install),
    precompiled.MODULES[0]: ("precompiled_aoti", precompiled.install_late),
    precompiled.MODULES[1]: ("precompiled_package", precompiled.install_late),
    precompiled.TENSORRT: ("precompiled_tensorrt", precompiled.install_late),
}
