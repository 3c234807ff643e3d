"""Maps a compile event, of PyTorch or of another compiler, to its phase. Pure.

Names are those of ``dynamo_timed`` (torch 2.6 to 2.15). An unlisted event takes the phase of the
event around it, so a new name inside a known event is harmless.
"""

from __future__ import annotations

from functools import lru_cache

from warmwatch.shared.record import PHASES

# Imports generated code: new code, with kernels that compile meanwhile, or code from a cache.
_LOADED_CODE, _NEW_CODE = "PyCodeCache.load_by_key_path", "code_gen"

# First match wins: special names before general ones.
_BY_SUBSTRING: tuple[tuple[str, str], ...] = (
    ("cudagraph", "cudagraph"),
    ("CUDAGraph", "cudagraph"),
    ("load_cached_static_autotuners", "cache_load"),
    ("StaticAutotunerFuture", "cache_load"),
    ("slow_precompile_config", "kernel_compile"),
    ("autotun", "autotune"),
    ("benchmark", "autotune"),
    ("coordinate_descent_tuning", "autotune"),
    ("CachingAutotuner", "autotune"),
    ("AOTAutogradCache", "cache_load"),
    ("FxGraphCache", "cache_load"),
    ("read_and_emit", "cache_load"),
    ("CompiledArtifact.load", "cache_load"),
    ("GraphPickler.loads", "cache_load"),
    ("after_deserialization", "cache_load"),
    ("precompile_load_guards", "cache_load"),
    ("precompile_build_guards", "dynamo"),
    (_LOADED_CODE, "cache_load"),
    ("async_compile", "kernel_compile"),
    ("compile_file", "kernel_compile"),
    ("reload_kernel", "kernel_compile"),
    ("TritonBundler", "kernel_compile"),
    ("compile_triton", "kernel_compile"),
    ("precompil", "kernel_compile"),
    ("cpp_wrapper_compile", "kernel_compile"),
    ("aot_", "aot_autograd"),
    ("create_aot_dispatcher", "aot_autograd"),
    ("min_cut_remat", "aot_autograd"),
    ("entire_backward_compile", "aot_autograd"),
    ("backward_state", "aot_autograd"),
    ("_grad_passes", "inductor"),
    ("_joint_graph_passes", "inductor"),
    ("pass.", "inductor"),
    ("inductor", "inductor"),
    ("fx_codegen", "inductor"),
    ("compile_fx", "inductor"),
    ("fake_tensor_prop", "inductor"),
    ("GraphLowering", "inductor"),
    ("Scheduler", "inductor"),
    ("code_gen", "inductor"),
    ("WrapperCodegen", "inductor"),
    ("backend_compile", "other"),
    ("compiled_autograd", "dynamo"),
    ("entire_frame_compile", "dynamo"),
    ("compile_attempt", "dynamo"),
    ("fullgraph_capture", "dynamo"),
    ("bytecode_tracing", "dynamo"),
    ("build_guards", "dynamo"),
    ("deferred_runtime_asserts", "dynamo"),
)
# Events of the hooks of other compilers, see hooks/registry.py.
TRITON_COMPILE, TRITON_TUNE = "triton compile", "triton tune"
EXTENSION_BUILD, EXTENSION_CHECK = "cpp_extension", "cpp_extension check"
CUSTOM = "custom"
OUTSIDE = "outside"  # a wait for a compiler in a process of its own
_OTHER_COMPILERS = {
    TRITON_COMPILE: "kernel_compile",
    TRITON_TUNE: "autotune",
    EXTENSION_BUILD: "kernel_compile",
    EXTENSION_CHECK: "cache_load",
    CUSTOM: "other",
    OUTSIDE: "outside",
}
_EXACT = {
    name: PHASES.index(phase) for name, phase in {"dynamo": "dynamo", **_OTHER_COMPILERS}.items()
}

# Dynamo compiles a frame or a backward: a data-loading or compile worker never does.
_TRACING = frozenset({"dynamo", "entire_frame_compile", "entire_backward_compile"})


# Torch 2.8 runs this when ``torch.compile`` is called, before there is anything to compile.
_PREPARATION = frozenset({"inductor_codecache_torch_key"})


@lru_cache(maxsize=4096)  # called at every event, with some 200 names
def phase_of(event: str, around: str | None = None) -> int | None:
    """Position in PHASES of the event's phase; ``None``: the phase of the event around it.

    ``around``: the name of that event.
    """
    if event in _EXACT:
        return _EXACT[event]
    if event == _LOADED_CODE and around == _NEW_CODE:
        return PHASES.index("kernel_compile")
    for part, phase in _BY_SUBSTRING:
        if part in event:
            return PHASES.index(phase)
    return None


def is_tracing(event: str) -> bool:
    """Whether the event means that this process itself compiles a model."""
    return event in _TRACING


def is_preparation(event: str) -> bool:
    """Whether the event compiles nothing, unless it is inside another one."""
    return event in _PREPARATION
