"""What each PyTorch version reports, so that a test expects what the installed one can report.

Found by running; docs/reference/pytorch-versions.md has the same table in words. A version that is
not listed here reports everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """One PyTorch version.

    Attributes:
        reason: its compilation record holds the reason of a recompile.
        missing: hook points that it lacks, as the agent's identity names them.
        limit: the setting that limits recompiles.
        threads: how many threads next to the main one can compile at the same time. The CUDA build
            of 2.11 crashes in the second one on a machine without a GPU, without the agent too.
        builds_with_baton: of several processes that load one C++ extension, one builds it for all.
        guards_parameters: it recompiles when ``requires_grad`` of a parameter changes.
        guards_integers: it recompiles for each value of an integer attribute of a module.
        breaks_at_tolist: ``tolist()`` of a tensor of integers breaks the graph.
        unrolled_size: the category of a recompile for the size of a tensor that a loop unrolls;
            2.6 guards the tensor's ``len()``, as it does a list's.
        quotes_lines: the reason of a recompile quotes the user's line.
        names_refused: the error of the stance ``fail_on_recompile`` names the function.
        names_types: a guard on a type names it.
        names_freed: a guard whose class was freed says so.
        names_objects: the reason of a graph break at an object that Dynamo does not trace, such as
            an iterator, names its class.
        break_message: the arguments of ``torch._dynamo.graph_break`` that give it a reason.
    """

    reason: bool = True
    missing: tuple[str, ...] = ()
    limit: str = "recompile_limit"
    threads: int = 3
    builds_with_baton: bool = True
    guards_parameters: bool = True
    guards_integers: bool = True
    breaks_at_tolist: bool = True
    unrolled_size: str = "shape"
    quotes_lines: bool = True
    names_refused: bool = True
    names_types: bool = True
    names_freed: bool = True
    names_objects: bool = True
    break_message: str = 'msg="{}"'


_VERSIONS = {
    (2, 6): Reports(
        reason=False,
        missing=("runtime_compilations", "cache_verdicts", "choices"),
        limit="cache_size_limit",
        guards_parameters=False,
        guards_integers=False,
        breaks_at_tolist=False,
        unrolled_size="python_value",
        quotes_lines=False,
        names_refused=False,
        names_types=False,
        names_objects=False,
        break_message="",
    ),
    (2, 8): Reports(missing=("cache_verdicts",), guards_parameters=False, names_objects=False),
    (2, 11): Reports(threads=1, guards_parameters=False, names_freed=False, names_objects=False),
    (2, 15): Reports(builds_with_baton=False),
}

INSTALLED = tuple(map(int, re.findall(r"\d+", metadata.version("torch"))[:2]))
VERSION = ".".join(map(str, INSTALLED))
TORCH = _VERSIONS.get(INSTALLED, Reports())
