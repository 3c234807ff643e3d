"""The closed lists of names. A position is a code in the slot: append, never reorder."""

from warmwatch.shared.values import NEW_INSTANCE

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
# The last one has no counter in ``recompiles_by_category``, but ``new_instances``.
REASONS = (*CATEGORIES, NEW_INSTANCE)
CACHES = ("inductor_fx", "aot_autograd", "triton")
COMPILE_CACHES = ("inductor", "triton")  # directories, each cold or warm
PROGRESS = ("kernels", "choices")  # what the activity in progress counts
# what turns compilation off; the last two only for new inputs
DISABLED = ("", "environment", "stance", "config", "eager_on_recompile", "fail_on_recompile")
# Code that runs and was compiled ahead of time: bits of one word, by position.
PRECOMPILED = ("aoti", "precompile", "jit", "tensorrt", "cudagraph")
SETTLED_BY = ("", "quiet", "ready")  # how a warm-up ended without steps
MEMORY = ("allocated", "reserved", "peak_allocated", "peak_reserved")
ENDS = ("", "finished", "failed", "detached", "interrupted")
