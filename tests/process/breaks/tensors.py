"""Breaks at tensors and their operators."""

# ruff: noqa: N812
import torch
import torch.nn.functional as F
from torch import nn

p = nn.Parameter(torch.ones(3, 3))
sparse = torch.eye(3).to_sparse()
strided = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
source = torch.Generator()
lstm = nn.LSTM(3, 3)
log_probs = torch.randn(5, 1, 3).log_softmax(2)
SIZE = "Avoid operators whose result's size depends on values"
DRAW = "draw the random numbers outside of the compiled function"
PARAMETER = "outside the compiled region"


def sized(cause, broken, cured, outside="", **rest):
    """An operator whose result's size depends on values."""
    return {
        "cause": cause,
        "remedy": SIZE,
        "broken": broken,
        "cured": cured,
        "outside": outside,
        **rest,
    }


MOVED = {
    "pack": (
        "`pack_padded_sequence`",
        "nn.utils.rnn.pack_padded_sequence(x.view(3, 3, 1), torch.tensor([3, 2, 1])).data",
        "x * v.sum()",
    ),
    "manual_seed": ("`manual_seed`", "torch.manual_seed(0)"),
    "rng_state": ("`get_rng_state`", "torch.get_rng_state()", "x * len(v)"),
    "requires_grad_of_the_input": ("requires_grad_()", "x.requires_grad_()"),
    "requires_grad_of_a_parameter": ("requires_grad", "p.requires_grad = True"),
    "data_ptr": ("an object", "x.data_ptr() * x.new_ones(())", "x * (v > 0)"),
    "storage": ("`UntypedStorage.nbytes`", "x.untyped_storage().nbytes()", "x * v"),
    "resize": ("resize_()", "torch.empty(0).resize_(3)"),
    "share_memory": ("share_memory_", "torch.ones(3).share_memory_()"),
    "is_inference": ("is_inference", "x.is_inference()", "x * v"),
    "threads": ("a function of torch", "torch.get_num_threads()", "x * v"),
    "device_count": ("`device_count`", "torch.cuda.device_count()", "x * (v + 1)"),
    "save": ("`save`", "torch.save(x, '/dev/null')"),
    "dlpack": ("`from_dlpack`", "torch.from_dlpack(x)", "x + v"),
    "apply": ("passes an operator an object", "x.clone().apply_(lambda value: value + 1)", "x + v"),
    "as_subclass": ("as_subclass", "x.as_subclass(torch.Tensor)", "x + v"),
    "autograd_backward": ("`backward`", "torch.autograd.backward((p * x).sum())"),
    "jacobian": (
        "passes an operator an object",
        "torch.autograd.functional.jacobian(lambda y: y**2, x[0])",
        "x + v.sum()",
    ),
    "tensor_with_gradients": (
        "requires_grad=True",
        "torch.ones(3, requires_grad=True)",
        "x * v.detach()",
    ),
    "parameter": (
        "torch.nn.Parameter()",
        "nn.Parameter(torch.ones(3))",
        "x * v",
    ),
    "lstsq": ("linalg_lstsq", "torch.linalg.lstsq(x, x)[0]", "x + v"),
    "ctc_loss": (
        "_ctc_loss",
        "F.ctc_loss(log_probs, torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2]))",
        "x + v",
    ),
}

CURED = {
    "nonzero": sized("aten.nonzero", "return x[x.nonzero()[:, 0]].sum()", "return x.sum() * 3"),
    "mask": sized("aten.nonzero", "return x[x > 2].sum()", "return (x * (x > 2)).sum()"),
    "unique": sized(
        "aten._unique2", "return x + torch.unique(x).sum()", "return x + v", "x.unique().sum()"
    ),
    "bincount": sized(
        "aten.bincount",
        "return x + torch.bincount(x.long().flatten()).sum()",
        "return x + v",
        "torch.bincount(x.long().flatten()).sum()",
    ),
    "repeat_interleave": sized(
        "aten.repeat_interleave",
        "return x + torch.repeat_interleave(x, x.long()[0], 0).sum()",
        "return x + v",
        "torch.repeat_interleave(x, x.long()[0], 0).sum()",
    ),
    "assign_by_a_mask": sized(
        "aten.nonzero",
        "y = x.clone()\ny[y > 2] = x[x > 2] * 2  #!\nreturn y",
        "return torch.where(x > 2, x * 2, x)",
        despite=(),
    ),
    "one_hot": {
        "cause": "one_hot",
        "remedy": "Explicitly set the `num_classes` param",
        "broken": "return F.one_hot(x.long()).sum()",
        "cured": "return F.one_hot(x.long(), 10).sum()",
    },
    "split": {
        "cause": "needs the value of a tensor",
        "remedy": "outside of the compiled function and pass it",
        "broken": "return sum(part.sum() for part in x.flatten().split(sizes().tolist()))",
        "cured": "return sum(part.sum() for part in x.flatten().split(v))",
        "outside": "[2, 3, 4]",
    },
    "arange": {
        "cause": "needs the value of a tensor",
        "remedy": "outside of the compiled function and pass it",
        "broken": "return torch.arange(x.long()[0, 0]).sum() + x",
        "cured": "return torch.arange(v).sum() + x",
        "outside": "int(x[0, 0])",
    },
    "generator": {
        "cause": "an object `Generator`",
        "remedy": DRAW,
        "broken": "return x + torch.rand(3, generator=source)",
        "cured": "return x + v",
        "outside": "torch.rand(3, generator=source)",
    },
    "new_generator": {
        "cause": "opaque object",
        "remedy": DRAW,
        "broken": "g = torch.Generator()  #!\nreturn x + torch.rand(3, generator=g)  #!",
        "cured": "return x + v",
        "outside": "torch.rand(3, generator=torch.Generator())",
    },
    "seed_of_a_generator": {
        "cause": "torch.Generator method",
        "remedy": "Seed the generator",
        "broken": "source.manual_seed(0)\nreturn x + 1",
        "cured": "return x + 1",
        "outside": "source.manual_seed(0)",
    },
    "fork_rng": {
        "cause": "context manager `_GeneratorContextManager`",
        "remedy": "Enter the context manager",
        "broken": "with torch.random.fork_rng():\n    return x + 1",
        "cured": "return x + 1",
    },
    "random": {
        "cause": "Tensor.random_",
        "remedy": "torch.randint",
        "broken": "return x + torch.empty(3).random_()",
        "cured": "return x + torch.randint(0, 2**24, (3,))",
    },
    "requires_grad": {
        "cause": "Tensor.requires_grad",
        "broken": "y = x.detach()\ny.requires_grad = True  #!\nreturn y + 1",
        "cured": "return v + 1",
        "outside": "x.detach().requires_grad_()",
    },
    "requires_grad_of_a_result": {
        "cause": "requires_grad_()",
        "remedy": "Call .detach() before returning",
        "broken": "y = (x * 2).detach().requires_grad_()\nreturn y + 1",
        "cured": "y = (x * 2).detach().requires_grad_()\nreturn (y + 1).detach()",
    },
    "out_of_another_size": {
        "cause": "out=",
        "remedy": "Leave out= away",
        "broken": "y = torch.empty(0)\ntorch.add(x, 1, out=y)  #!\nreturn y",
        "cured": "return torch.add(x, 1)",
    },
    "out_of_another_layout": {
        "cause": "`out=`",
        "remedy": "a contiguous tensor of the result's size",
        "broken": "y = torch.empty(3, 3).t()\ntorch.add(x, 1, out=y)  #!\nreturn y",
        "cured": "y = torch.empty(3, 3)\ntorch.add(x, 1, out=y)\nreturn y",
    },
    "to_sparse": {
        "cause": "sparse Tensor",
        "remedy": "use it outside of the compiled function",
        "broken": "return x + x.to_sparse().to_dense()",
        "cured": "return x + v",
        "outside": "x.to_sparse().to_dense()",
    },
    "sparse_matrix": {
        "cause": "sparse Tensor",
        "remedy": "Make it dense (to_dense())",
        "broken": "return torch.sparse.mm(sparse, x)",
        "cured": "return v @ x",
        "outside": "sparse.to_dense()",
    },
    "nested": {
        "cause": "strided NestedTensor",
        "remedy": "layout=torch.jagged",
        "broken": "return x + strided.unbind()[0].sum()",
        "cured": "return x + jagged.values()[:2].sum()",
    },
    "lstm": {
        "cause": "LSTM",
        "remedy": "Call it outside of the compiled function",
        "broken": "return lstm(x)[0] * 2",
        "cured": "return v * 2",
        "outside": "lstm(x)[0]",
    },
    "device": {
        "cause": "context manager `device`",
        "remedy": "Enter the context manager",
        "broken": "with torch.device('cpu'):\n    return torch.ones(3) + x",
        "cured": "return torch.ones(3) + x",
    },
    "saved_tensors": {
        "cause": "saved_tensors_hooks",
        "broken": "with torch.autograd.graph.saved_tensors_hooks(id, id):\n    return x + 1",
        "cured": "return x + 1",
    },
    "backward": {
        "cause": "Tensor.backward()",
        "remedy": "call backward() outside of the compiled function",
        "broken": "(p * x).sum().backward()\nreturn x + 1",
        "cured": "return (p * x).sum()",
        "varies": True,
    },
    "grad": {
        "cause": "torch.autograd.grad",
        "remedy": "Change `torch._dynamo.config.trace_autograd_ops` to `True`",
        "broken": "return torch.autograd.grad((p * x).sum(), p)[0] * 2",
        "cured": "return v * 2",
        "outside": "torch.autograd.grad((p * x).sum(), p)[0]",
    },
}


def sizes():
    return torch.tensor([2, 3, 4])
