"""Recompile reasons in PyTorch's own words, and their categories."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warmwatch.hooks.dynamo import recompile_reasons
from warmwatch.hooks.dynamo.compilations import kind_of
from warmwatch.hooks.dynamo.recompile_reasons import category_of, cause_first
from warmwatch.hooks.phases import phase_of
from warmwatch.hooks.redaction import recompile
from warmwatch.shared.advice import advice
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import PHASES

_IDENTITY = "object_identity"
KEYS = "dispatch key set mismatch. expected DispatchKeySet"


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("0/0: tensor 'i' size mismatch at index 0. expected 16, actual 14", "shape"),
        ("0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 1", "shape"),
        ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", "shape"),
        ("0/1: 2 <= x.size()[0]  # (_dynamo/output_graph.py:1)", "shape"),
        ("0/0: Eq(s0, 4)", "shape"),
        ("0/1: n == x.size()[0]", "shape"),
        ("0/0: GLOBAL_STATE changed: grad_mode ", "grad_mode"),
        ("0/0: ___check_global_state() against grad_mode", "grad_mode"),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Half", "dtype"),
        ("0/0: tensor 'w' requires_grad mismatch. expected requires_grad=1", "requires_grad"),
        ("0/0: GLOBAL_STATE changed: autocast ", "autocast"),
        (f"0/0: tensor 'x' {KEYS}(CPU), actual DispatchKeySet(CPU, AutocastCPU)", "autocast"),
        (f"0/0: tensor 'x' {KEYS}(CPU), actual DispatchKeySet(CPU, Negative)", "object_identity"),
        ("0/0: tensor 'x' device mismatch. expected cpu, actual cuda", "device"),
        (f"0/0: tensor 'x' {KEYS}(CPU, Autograd), actual DispatchKeySet(CUDA, Autograd)", "device"),
        (f"0/0: tensor 'x' {KEYS}(CPU), actual DispatchKeySet(SparseCPU)", "object_identity"),
        ("0/0: len(b) != 1", "python_value"),
        ("0/0: list(dict.keys(b))[0] == 'a'", "python_value"),
        ("0/0: expected type of 't' to be a tensor type, ' but found <class 'T'>", _IDENTITY),
        (
            "0/0: expected type of 't' to be <class 'torch.Tensor'>, but found <class 'T'>",
            _IDENTITY,
        ),
        ("0/0: getattr failed on source k", "python_value"),
        ("0/0: GLOBAL_STATE changed: deterministic_algorithms ", "global_state"),
        ("0/0: self.training == False", "module_state"),
        ("0/0: ___check_obj_id(fn, 94)", "object_identity"),
        ("0/0: lr == 0.1", "python_value"),
        ("0/0: L['deterministic'] == False", "python_value"),
        ("0/0: self._modules['act'].use_autocast == True", "python_value"),
        ("0/0: self._modules['q'].scaling['...'] == 1.0", "python_value"),
        ("0/0: ___as_tensor(self._modules['q'].num_threads).item() == 2", "python_value"),
        ("0/0: self._modules['q'].training == False", "module_state"),
        ("0/0: len(self._modules['blocks']._modules) == 3", "module_state"),
        ("0/0: self.n == 1  # with torch.autocast('cpu', enabled=n > 0):", "python_value"),
        ("0/0: len(xs) == 3", "python_value"),
        ("0/0: words of a PyTorch to come", "other"),
        ("", "other"),
    ],
)
def test_a_reason_has_its_category(reason: str, category: str) -> None:
    assert category_of(reason) == category


def most_specific_first(reasons: list[str]) -> str:
    return cause_first(reasons, {}, None).text


def test_the_guard_of_the_present_mode_comes_first() -> None:
    """After an evaluation its entry comes first, though the training's own guard is the cause."""
    size = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 6"
    reasons = most_specific_first(["0/1: GLOBAL_STATE changed: grad_mode ", size])
    assert reasons == f"{size}\n0/1: GLOBAL_STATE changed: grad_mode"
    assert category_of(reasons) == "shape"


def test_an_entry_for_a_size_of_one_explains_no_other_size() -> None:
    one = "0/1: tensor 'x' size mismatch at index 1. expected 1, actual 66"
    size = "0/0: tensor 'x' size mismatch at index 1. expected 64, actual 66"
    assert most_specific_first([one, size]) == f"{size}\n{one}"


def test_a_setting_that_changed_is_the_cause_and_not_a_mode_that_comes_in_turn() -> None:
    """Both modes were compiled: without the new setting, their entries would serve."""
    setting = "GLOBAL_STATE changed: allow_tf32 "
    mode = "GLOBAL_STATE changed: autocast(cpu)_enabled "
    both = "GLOBAL_STATE changed: autocast(cpu)_enabled allow_tf32 "
    for reasons in ([both, setting], [mode, setting, both]):
        texts = [f"0/{len(reasons) - at}: {text}" for at, text in enumerate(reasons, 1)]
        found = most_specific_first(texts)
        assert category_of(found) == "global_state"
        assert plain(found) == "the setting `allow_tf32` (precision of float32) changed"
    assert category_of(most_specific_first([f"0/1: {mode}", f"0/0: {both}"])) == "autocast"


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        ("dynamo", "dynamo"),
        ("entire_frame_compile", "dynamo"),
        ("bytecode_tracing", "dynamo"),
        ("aot_trace_joint_graph", "aot_autograd"),
        ("create_aot_dispatcher_function", "aot_autograd"),
        ("entire_backward_compile", "aot_autograd"),
        ("inductor_compile", "inductor"),
        ("_recursive_post_grad_passes", "inductor"),
        ("code_gen", "inductor"),
        ("async_compile.wait", "kernel_compile"),
        ("compile_file", "kernel_compile"),
        ("CachingAutotuner.benchmark_all_configs", "autotune"),
        ("mm_template_autotuning", "autotune"),
        ("mm_template_precompiling", "kernel_compile"),
        ("CachingAutotuner.slow_precompile_config", "kernel_compile"),
        ("TritonBundler.load_cached_static_autotuners", "cache_load"),
        ("precompile_build_guards", "dynamo"),
        ("coordinate_descent_tuning", "autotune"),
        ("CUDAGraphNode.record", "cudagraph"),
        ("CUDAGraphTreeManager.record_function", "cudagraph"),
        ("AOTAutogradCache.inductor_load", "cache_load"),
        ("AOTAutogradCache.inductor_load PyCodeCache.load_by_key_path", "cache_load"),
        ("inductor_compile PyCodeCache.load_by_key_path", "cache_load"),
        ("code_gen PyCodeCache.load_by_key_path", "kernel_compile"),
        ("StaticAutotunerFuture.warm_precompile", "cache_load"),
        ("backend_compile", "other"),
    ],
)
def test_an_event_has_its_phase(event: str, phase: str) -> None:
    """An event, or two: the second one within the first."""
    *around, name = event.split()
    position = phase_of(name, *around)
    assert position is not None
    assert PHASES[position] == phase


@pytest.mark.parametrize("reason", ["len(L['names']) == 3", "0/1: len(d) == 2  # for x in d"])
def test_a_changed_length_is_not_categorized_as_a_changed_number(reason: str) -> None:
    words = advice("python_value", "forward", reason)
    assert words is not None
    assert "learning rate" not in words
    assert "number of items" in words
    assert "two values of it" in str(advice("python_value", "forward", "L['lr'] == 0.1"))


def test_a_compilation_without_a_frame_is_not_a_forward() -> None:
    """As the records of torch 2.13: of a frame, of one that hits the recompile limit, of a
    backward, of ahead-of-time Inductor.
    """
    frame = SimpleNamespace(is_forward=True, co_name="forward", compile_id="0/0")
    limited = SimpleNamespace(is_forward=None, co_name=None, compile_id="0/2")
    backward = SimpleNamespace(is_forward=False, co_name=None, compile_id="0/0")
    ahead = SimpleNamespace(is_forward=None, co_name=None, compile_id=None)
    kinds = [kind_of(one) for one in (frame, limited, backward, ahead)]
    assert kinds == ["forward", "forward", "backward", "other"]


def test_a_frame_with_thousands_of_entries_costs_no_more_than_one_with_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each recompile has a reason for each earlier entry: 10,000 of them would be 50 million."""
    categorized: list[str] = []

    def counting(reason: str) -> str:
        categorized.append(reason)
        return category_of(reason)

    monkeypatch.setattr(recompile_reasons, "category_of", counting)
    sizes = [
        f"0/{at}: tensor 'x' size mismatch at index 0. expected 2, actual {at}"
        for at in range(5000)
    ]
    reasons = ["0/5001: GLOBAL_STATE changed: grad_mode ", *sizes]
    assert recompile(most_specific_first(reasons)) == recompile("\n".join([*sizes, reasons[0]]))
    assert len(categorized) < 20
