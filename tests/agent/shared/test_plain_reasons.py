"""PyTorch's reasons in plain words: real texts of torch 2.6 to 2.15."""

from __future__ import annotations

import time

import pytest

from warmwatch.hooks.dynamo.recompile_reasons import category_of
from warmwatch.hooks.redaction import recompile
from warmwatch.shared.reasons import plain

KEYS = "dispatch key set mismatch. expected DispatchKeySet"
USER = "# def sz(x): return x*2 if x.size(0)>5 else x*3  # words/real.py:79 in sz"
BATCH = "batch size (dim 0 of `{}`) went from {} to {}"
EVALUATION = "grad mode changed: evaluation or no_grad began or ended"

PLAIN = {
    "0/0: tensor 'i' size mismatch at index 0. expected 16, actual 14": BATCH.format("i", 16, 14),
    "0/0: tensor 'tokens' size mismatch at index 0. expected 16, actual 7\n"
    "0/1: GLOBAL_STATE changed: grad_mode": BATCH.format("tokens", 16, 7),
    "0/0: tensor 'L['x']' size mismatch at index 0. expected 4, actual 6": BATCH.format("x", 4, 6),
    "0/0: tensor 'b['ids']' size mismatch at index 0. expected 4, actual 5": BATCH.format(
        "b['ids']", 4, 5
    ),
    "0/0: tensor 'tokens' size mismatch at index 1. expected 64, actual 48": (
        "`tokens`: dim 1 went from 64 to 48"
    ),
    "0/0: tensor 'self.cache' size mismatch at index 0. expected 4, actual 8": (
        "`self.cache`: dim 0 went from 4 to 8"
    ),
    "0/0: Unexpected recompilation: runtime guards failed even though they passed": (
        "PyTorch found no guard that failed; if you pressed Ctrl-C, PyTorch lost it: press it again"
    ),
    "n: expected 4096, actual 8192": "`n` went from 4096 to 8192",
    "dtype of x: expected float32, actual bfloat16": "dtype of `x` went from float32 to bfloat16",
    "alignment of n: expected a multiple of 16, actual absent\nBLOCK: expected 1, actual 2": (
        "alignment of `n` went from a multiple of 16 to absent"
    ),
    "MODE: expected '...', actual '...'": "`MODE` changed",
    "0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 1": (
        "`x`: stride of dim 0 went from 4 to 1"
    ),
    "0/0: tensor 'x' rank mismatch. expected 2, actual 3": "`x`: number of dims went from 2 to 3",
    "0/0: tensor 'x' dtype mismatch. expected Float, actual Half": (
        "`x`: dtype went from Float to Half"
    ),
    "0/0: tensor 'x' device mismatch. expected cpu, actual cuda": (
        "`x`: device went from cpu to cuda"
    ),
    "0/0: tensor 'w' requires_grad mismatch. expected requires_grad=1": (
        "requires_grad of `w` changed"
    ),
    f"0/0: tensor 'x' {KEYS}(CPU), actual DispatchKeySet(CPU, AutocastCPU)": (
        "autocast was entered or left"
    ),
    "0/0: not (n == 1 or n == 3)  # a.py:4 in f": (
        "`not (n == 1 or n == 3)` no longer holds (a.py:4)"
    ),
    "0/0: dict(type(L['self']).__dict__)['scale'] == 2": "`self.__class__.scale` is no longer 2",
    "0/0: type(L['self']).__mro__[1].__dict__['scale'] == 2.5": (
        "`self.__class__.scale` is no longer 2.5"
    ),
    "0/0: self._modules['drop'].training == True  # a.py:1 in f": (
        "the module `self.drop` went from train() to eval()"
    ),
    "0/0: len(self._modules['sub'].names) == 3": "the length of `self.sub.names` is no longer 3",
    "0/0: len(self._modules['sub']._modules) != 3": (
        "the number of submodules or parameters of `self.sub` changed"
    ),
    "0/0: len(self.state[list(dict.keys(self.state))[0]]) != 0": (
        "`self.state['...']` was empty and is not now"
    ),
    "0/0: tensor 'self._buffers['b']' dtype mismatch. expected Float, actual Double": (
        "`self.b`: dtype went from Float to Double"
    ),
    "0/0: tensor '___from_numpy(a)' rank mismatch. expected 1, actual 2": (
        "`a`: number of dims went from 1 to 2"
    ),
    "0/0: os.environ._data[b'...'] == b'...'  # <frozen os>:761 in decode": (
        "`os.environ['...']` changed"
    ),
    f"0/0: tensor 'x' {KEYS}(CPU), actual DispatchKeySet(CPU, Negative)": (
        "`x` is of another kind (now Negative)"
    ),
    f"0/0: tensor 'x' {KEYS}(CPU, AutogradCPU), actual DispatchKeySet(Meta, AutogradMeta)": (
        "`x`: device went from CPU to Meta"
    ),
    f"0/0: tensor 'x' {KEYS}(CPU, AutogradCPU), actual DispatchKeySet(SparseCPU, AutogradCPU)": (
        "`x`: kind went from CPU to SparseCPU"
    ),
    "0/0: len(b) != 1": "the length of `b` is no longer 1",
    "0/0: len(L['b']) != 1": "the length of `b` is no longer 1",
    "0/0: list(dict.keys(b))[0] == 'a'   # f(b)  # t.py:1 in f": (
        "the keys of `b`, or their order, changed"
    ),
    "0/0: list(L['b'].keys())[0] == 'a'    ": "the keys of `b`, or their order, changed",
    "0/0: expected type of 't' to be a tensor type, ' but found <class 'a.T'>": (
        "`t`: type went from Tensor to T"
    ),
    "0/0: expected type of 't' to be <class 'torch.Tensor'>, but found "
    "<class 'torch.nn.parameter.Parameter'>": "`t`: type went from Tensor to Parameter",
    "0/0: expected type of 'L['t']' to be a tensor type, ' but found <class 'NoneType'>": (
        "`t`: type went from Tensor to None"
    ),
    "0/0: getattr failed on source k": "an attribute that `k` had is missing",
    "0/0: tensor 's._parameters['w']' size mismatch at index 0. expected 4, actual 5. Guard failed "
    "on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False "
    "to allow dynamism on parameters.": "`s.w`: dim 0 went from 4 to 5",
    "0/0: tensor 'p' size mismatch at index 0. expected 4, actual 5. Guard failed on a parameter, "
    "consider using torch._dynamo.config": "`p`: dim 0 went from 4 to 5",  # no batch
    "0/0: tensor 'p' stride mismatch at index 0. expected 4, actual 1. Guard failed on a "
    "parameter, consider using torch._dynamo.config": "`p`: stride of dim 0 went from 4 to 1",
    "1/0: ___stack4[0] == 2  # torch.split(y, n.tolist())": (
        "a value from before the graph break is no longer 2"
    ),
    "1/0: tensor '___stack0[1]' size mismatch at index 0. expected 4, actual 5": (
        "a tensor from before the graph break: dim 0 went from 4 to 5"
    ),
    "0/2: self.state[list(dict.keys(self.state))[0]]['step'] == 1": (
        "`self.state['...']['step']` is no longer 1"
    ),
    "0/2: L['self'].state[list(L['self'].state.keys())[0]]['step'] == 1": (
        "`self.state['...']['step']` is no longer 1"
    ),
    "0/0: x.size()[1] == x.size()[0]  # duck sizing added this equality": (
        "dim 1 of `x` and dim 0 of `x` are no longer equal"
    ),
    "0/1: 16 != (x.size()[3] // 2)  # crop.py:14 in index (_dynamo/utils.py:42 in run_node)": (
        "`16 != (x.size(3) // 2)` no longer holds (crop.py:14)"
    ),
    "0/1: x.size()[1] % 8 == 0  # a.py:3 in f": "`x.size(1) % 8 == 0` no longer holds (a.py:3)",
    "0/1: 2*x.size()[0] == y.size()[0]  # a.py:3 in f": (
        "`2*x.size(0) == y.size(0)` no longer holds (a.py:3)"
    ),
    "0/1: x.size()[0]*x.size()[1] == y.size()[0]  # a.py:3 in f": (
        "`x.size(0)*x.size(1) == y.size(0)` no longer holds (a.py:3)"
    ),
    "0/0: GLOBAL_STATE changed: grad_mode ": EVALUATION,
    "0/0: ___check_global_state() against grad_mode": EVALUATION,
    "0/0: GLOBAL_STATE changed: autocast ": "autocast was entered or left",
    "0/0: GLOBAL_STATE changed: deterministic_algorithms ": (
        "the setting of deterministic algorithms changed"
    ),
    "0/0: GLOBAL_STATE changed: something_new ": "a global setting of PyTorch changed",
    f"0/1: 2 <= x.size()[0] <= 5  {USER}": "`x`: dim 0 left the compiled range (2 to 5)",
    f"0/1: 2 <= x['of'].size()[0]  {USER}": (
        "batch size (dim 0 of `x['of']`) is 0 or 1, which PyTorch compiles separately"
    ),
    f"0/1: 33 <= x.size()[0]  {USER}": "`x`: dim 0 left the compiled range (33 or more)",
    f"0/1: x.size()[0] <= 64  {USER}": "`x`: dim 0 left the compiled range (up to 64)",
    "0/1: 2 <= args[0].size()[0] <= 4096  # return F.linear(input)  # linear.py:134 in forward\n"
    "0/0: tensor 'args[0]' size mismatch at index 0. expected 32, actual 1": (
        "batch size (dim 0 of `args[0]`) is 1, which PyTorch compiles separately"
    ),
    "0/1: 2 <= L['x'].size()[1] <= 5\n0/0: tensor 'L['x']' size mismatch at index 0. "
    "expected 2, actual 3\n0/0: tensor 'L['x']' size mismatch at index 1. expected 4, actual 9": (
        "`x`: dim 1 is 9, outside the compiled range (2 to 5)"
    ),
    "0/1: 2 <= x.size()[0] <= 5\n0/0: tensor 'y' size mismatch at index 0. expected 4, actual 9": (
        "`x`: dim 0 left the compiled range (2 to 5)"
    ),
    "0/0: Eq(s0, 4)": "a size left the compiled range",
    "0/0: self.training == False": "the module went from eval() to train()",
    "0/0: L['self'].training == True": "the module went from train() to eval()",
    "0/0: self.n == 1  # with torch.autocast('cpu', enabled=n > 0):": "`self.n` is no longer 1",
    "0/0: lr == 0.1": "`lr` is no longer 0.1",
    "0/0: lr == 0.30000000000000004": "`lr` is no longer 0.3",
    "0/1: ___as_tensor(L['self'].p).item() == 0.7": "`self.p` is no longer 0.7",  # until 2.12
    "0/0: lr == 0.0009876543210123457": "`lr` is no longer 0.000987654",
    "0/0: lr == 1e-05": "`lr` is no longer 1e-05",
    "0/0: seed == 12345678": "`seed` is no longer 12345678",
    "1/0: len(___stack2) == 3": "the length of a value from before the graph break is no longer 3",
    "1/0: ___stack0 == 0.1": "a value from before the graph break is no longer 0.1",
    "0/0: cfg['...'] == '...'  # train.py:31 in forward": "`cfg['...']` changed (train.py:31)",
    "0/0: G['cfg']['...'] == '...'": "`cfg['...']` changed",
    "0/0: cfg['...'] == 3": "`cfg['...']` is no longer 3",
    "0/0: len(xs) == 3": "the length of `xs` is no longer 3",
    "0/0: len(f.__closure__[cache].cell_contents.names) == 3": (
        "the length of `cache.names` in the closure of `f` is no longer 3"
    ),
    "0/0: ___check_obj_id(fn, 94)": "`fn` is no longer the same object",
    "0/0: words of a PyTorch to come": None,
    "": None,
}


@pytest.mark.parametrize(("reason", "words"), PLAIN.items())
def test_a_reason_is_translated_into_plain_text(reason: str, words: str | None) -> None:
    assert plain(reason, category_of(reason)) == words


@pytest.mark.parametrize(
    "reason", [None, "", "0/0: ", "\n", "0/0: tensor ''", f"0/0: lr == {'9' * 500}", "0/0: ((("]
)
def test_an_unrecognized_reason_is_shown_as_pytorch_wrote_it(reason: str | None) -> None:
    assert plain(reason, category_of(reason or "")) is None


@pytest.mark.parametrize("part", ["a", "[", "tensor 'a", "x: expected 1, actual ", "L['a'].b"])
def test_a_hostile_text_costs_no_more_time_than_a_reason(part: str) -> None:
    """An answer has twenty of them for each rank."""
    reason = next(iter(PLAIN))

    def took(text: str, times: int) -> float:
        before = time.process_time()
        for _ in range(times):
            plain(text, "shape")
        return time.process_time() - before

    hostile = part * (4_000 // len(part))
    assert min(took(hostile, 1) for _ in range(3)) < min(took(reason, 500) for _ in range(3))


def test_a_type_is_also_recognized_in_a_redacted_reason() -> None:
    """The quote that older versions leave open does not hide what follows."""
    for found in ("'t' to be a tensor type, '", "'L['t']' to be <class 'torch.Tensor'>,"):
        reason = f"0/0: expected type of {found} but found <class '__main__.Mine'>"
        reduced = recompile(reason)
        assert plain(reduced, category_of(reduced)) == "`t`: type went from Tensor to Mine"
