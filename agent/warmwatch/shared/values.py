"""Bounds of recorded values, and how text is made printable. Pure.

The agent applies the bounds where a user passes a value; the monitor applies them again where it
reads a record.

In the closed lists of names, a position is a code in the slot: append, never reorder.
"""

from __future__ import annotations

# hashlib loads OpenSSL before it takes the same function from there: 11 million instructions
try:
    from _blake2 import blake2b as blake2b
except ImportError:  # a Python built without it
    from hashlib import blake2b as blake2b

TEXT_LIMIT = 200  # characters of a name
LARGEST = 2**53  # every integer up to here survives JSON and a Prometheus sample
LARGEST_AMOUNT = 1e300  # leaves range to multiply and divide
MOST_RANKS = 1_000_000  # of a run; also of restarts: more than any launcher starts
MOST_OPTIONS = 50  # of torch.compile's options
VERDICTS = ("hit", "miss", "bypass")  # of a lookup in a compile cache
DTYPES = ("bfloat16", "float16", "float8", "tf32", "float32")  # of a GPU's computation
OTHER_DTYPE = "other"  # of operations that compute in none of these, or in an unknown type
FEWEST_EAGER, MOST_EAGER = 2, 10_000  # eager baseline steps; the first one has no length

EXPORT, STRICT_EXPORT = "torch.export", "torch.export(strict=True)"  # names of compilations

# The category of the first compilation of another module of a class: nothing has changed.
NEW_INSTANCE = "new_instance"
FUNCTION = "function"  # what a wrapper calls, in place of a class


def hashed(data: bytes = b"", *, size: int) -> blake2b:
    """A BLAKE2b hash of ``size`` bytes, for comparison only."""
    return blake2b(data, digest_size=size, usedforsecurity=False)


def printable(text: str, keep: str = "") -> str:
    r"""``text`` with unprintable characters escaped, as in ``\x1b``; ``keep`` stays."""
    if text.isprintable():
        return text
    return "".join(s if s.isprintable() or s in keep else ascii(s)[1:-1] for s in text)


PHASES = (
    "dynamo",
    "aot_autograd",
    "inductor",
    "kernel_compile",
    "autotune",
    "cudagraph",
    "cache_load",
    "other",
    "outside",
)
KINDS = (
    "forward",
    "backward",
    "autotune",
    "cudagraph",
    "other",
    "triton",
    "cpp_extension",
    "custom",
    "outside",
)
CATEGORIES = (
    "shape",
    "grad_mode",
    "dtype",
    "requires_grad",
    "autocast",
    "python_value",
    "module_state",
    "object_identity",
    "global_state",
    "device",
    "other",
)
# The last one has no counter in ``recompiles_by_category``, but ``new_instances`` of PLAIN.
REASONS = (*CATEGORIES, NEW_INSTANCE)
CACHES = ("inductor_fx", "aot_autograd", "triton")
COMPILE_CACHES = ("inductor", "triton")  # directories, each cold or warm
PROGRESS = ("kernels", "choices")  # what the activity in progress counts
# what turns compilation off; the last two only for new inputs
DISABLED = ("", "environment", "stance", "config", "eager_on_recompile", "fail_on_recompile")
# Code that runs and was compiled ahead of time: bits of one word, by position.
PRECOMPILED = ("aoti", "precompile", "jit", "tensorrt", "cudagraph")
# Counters that are figures as they are, by name: the hook points that one needs, its metric without
# ``warmwatch_`` or "", and its text. A hook counts one by the fact ``counted``. Append only: its
# place is a word of the record, which has room for MOST_PLAIN.
MOST_PLAIN = 16
PLAIN: dict[str, tuple[tuple[str, ...], str, str]] = {
    "new_instances": (
        ("compilations", "compilation_kinds", "compilation_ids"),
        "",
        (
            "Of the recompiles, the first compilations of a module after another one of its class, "
            "or of a function after another one that the same wrapper calls: nothing of it has "
            "changed (category `new_instance`)."
        ),
    ),
}
SETTLED_BY = ("", "quiet", "ready")  # how a warm-up ended without steps
MEMORY = ("allocated", "reserved", "peak_allocated", "peak_reserved")
ENDS = ("", "finished", "failed", "detached", "interrupted")
