"""Breaks at numbers that are read from tensors, and at NumPy."""

import math

import numpy as np
import torch

floats = (1.0, 2.0, 3.0)
layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))
generator = np.random.default_rng(0)
VALUE = "needs the value of a tensor"
KEEP = "Keep the number a tensor"
COMPARE = "Compare with operators that return a tensor"
BRANCH = "branches on a tensor's value"
WHERE = "torch.where"
SCALARS = ("capture_scalar_outputs",)
NUMPY = "torch function in its place"

MOVED = {
    "range_of_a_tensor": ("`range`", "range(x.long()[0, 0])", "x * len(v)"),
    "sort_tensors": ("sort with", "sorted([x.sum(), x.mean()])[0]", "x * v"),
    "numpy_generator": ("`Generator.random`", "generator.random()", "x * v"),
}

# by name: what breaks and what does not, for the same cause and remedy
KEPT = {
    "item": ("return x * x.sum().item()", "return x * x.sum()"),
    "math": ("return x * math.sqrt(x.sum())", "return x * x.sum().sqrt()"),
    "tolist": ("return x * sum(x[0].long().tolist())", "return x * x[0].long().sum()"),
    "in_a_tensor": ("return x * (2.0 in x)", "return x * (x == 2.0).any()"),
    "not_a_tensor": ("return x * (not x.sum())", "return x * x.sum().logical_not()"),
    "numpy_float": ("return x * float(np.mean(x.numpy()))", "return x * x.mean()"),
}
WHERES = {
    "ternary": ("return x if x.sum() > 1 else x + 1", "return torch.where(x.sum() > 1, x, x + 1)"),
    "and": (
        "return x * (x.sum() > 1 and x.mean() > 2)",
        "return x * torch.where(x.sum() > 1, x.mean() > 2, False)",
    ),
    "branch": (
        "if x.sum() > 1:\n    return x\nreturn x + 1",
        "return torch.where(x.sum() > 1, x, x + 1)",
    ),
    "any": (
        "if any(row.sum() > 5 for row in x):\n    return x + 1\nreturn x",
        "return torch.where((x.sum(1) > 5).any(), x + 1, x)",
    ),
    "branch_of_numpy": (
        "if np.isnan(x.numpy()).any():\n    return x + 1\nreturn x",
        "return torch.where(x.isnan().any(), x + 1, x)",
    ),
}


def alike(cause, remedy, pairs):
    return {
        name: {"cause": cause, "remedy": remedy, "broken": broken, "cured": cured}
        for name, (broken, cured) in pairs.items()
    }


CURED = {
    **alike(VALUE, KEEP, KEPT),
    **alike(BRANCH, WHERE, WHERES),
    "format_a_number": {
        "cause": VALUE,
        "remedy": "take it, or draw it if it is random, outside of the compiled function",
        "broken": "v = x.sum().item()  #!\nreturn x * len(f'{v:.2f}')  #!",
        "cured": "return x * len(v)",
        "outside": "f'{x.sum().item():.2f}'",
        "despite": SCALARS,
    },
    "log_a_number": {
        "cause": VALUE,
        "remedy": "copy_() it into one that exists beforehand",
        "broken": "logged.append(x.sum().item())\nreturn x + 1",
        "cured": "last.copy_(x.sum())\nreturn x + 1",
    },
    "tolist_of_floats": {
        "cause": "tolist() with non-integer",
        "remedy": "Keep the numbers in a tensor",
        "broken": "return x * sum(x[0].tolist())",
        "cured": "return x * x[0].sum()",
    },
    "index_of_a_list": {
        "cause": VALUE,
        "remedy": "no branch, loop or index of a list depends on it",
        "broken": "return x * floats[x.long()[0, 0]]",
        "cured": "return x * (torch.tensor(floats) * (torch.arange(3) == x.long()[0, 0])).sum()",
        "despite": SCALARS,
    },
    "index_of_modules": {
        "cause": VALUE,
        "remedy": "call it outside of the compiled function",
        "broken": "return layers[x.long()[0, 0]](x)",
        "cured": "return layers[v](x)",
        "outside": "int(x[0, 0])",
    },
    "match": {
        "cause": VALUE,
        "remedy": "pass it",
        "broken": "match x.long()[0, 0].item():\n    case 1: return x * 2\n    case _: return x",
        "cured": "match v:\n    case 1: return x * 2\n    case _: return x",
        "outside": "x.long()[0, 0].item()",
        "despite": SCALARS,
    },
    "size_of_a_slice": {
        "cause": VALUE,
        "remedy": KEEP,
        "broken": "return x[: x.long()[0, 0]] * 2",
        "cured": "return x[:v] * 2",
        "outside": "int(x[0, 0])",
    },
    "equal": {
        "cause": "aten.equal",
        "remedy": COMPARE,
        "broken": "return x + 1 if torch.equal(x, x * 2) else x",
        "cured": "return torch.where((x == x * 2).all(), x + 1, x)",
    },
    "allclose": {
        "cause": "aten.allclose",
        "remedy": COMPARE,
        "broken": "return x * torch.allclose(x, x + 1)",
        "cured": "return x * torch.isclose(x, x + 1).all()",
    },
    "raise": {
        "cause": BRANCH,
        "remedy": "torch._assert_async",
        "broken": "if not torch.isfinite(x).all():\n    raise ValueError('nan')\nreturn x + 1",
        "cured": "torch._assert_async(torch.isfinite(x).all())\nreturn x + 1",
    },
    "assert_with_a_text": {
        "cause": BRANCH,
        "remedy": "torch._assert_async",
        "broken": "assert x.sum() > 0, f'{x.sum()}'\nreturn x + 1",
        "cured": "torch._assert_async(x.sum() > 0)\nreturn x + 1",
    },
    "while": {
        "cause": BRANCH,
        "remedy": "take the branch out of the compiled function",
        "broken": "while x.sum() < 100:\n    x = x * 2\nreturn x",
        "cured": "for _ in range(v): x = x * 2\nreturn x",
        "outside": "2",
    },
    "numpy_random": {
        "cause": "a random number",
        "remedy": "draw it if it is random, outside of the compiled function and pass it",
        "broken": "return x * np.random.rand()",
        "cured": "return x * v",
        "outside": "np.random.rand()",
    },
    "numpy_pad": {
        "cause": VALUE,
        "remedy": KEEP,
        "broken": "return torch.from_numpy(np.pad(x.numpy(), 1)) * 2",
        "cured": "return torch.nn.functional.pad(x, (1, 1, 1, 1)) * 2",
        "despite": SCALARS,
    },
    "numpy_tolist": {
        "cause": "tolist() with non-integer",
        "remedy": "Keep the numbers in a tensor",
        "broken": "return x * x.numpy().tolist()[0][0]",
        "cured": "return x * x[0][0]",
    },
    "numpy_unique": {
        "cause": "aten.unique_dim",
        "remedy": "call them outside of the compiled function",
        "broken": "return x * np.unique(x.numpy()).sum()",
        "cured": "return x * v",
        "outside": "torch.from_numpy(np.unique(x.numpy())).sum()",
    },
    "numpy_save": {
        "cause": "numpy",
        "remedy": NUMPY,
        "broken": "np.save('/dev/null', x.numpy())\nreturn x + 1",
        "cured": "return x + 1",
    },
    "numpy_interp": {
        "cause": "numpy",
        "remedy": NUMPY,
        "broken": "return x * torch.from_numpy(np.interp(x.numpy(), [0, 9], [0.0, 1.0]))",
        "cured": "return x * v",
        "outside": "torch.from_numpy(np.interp(x.numpy(), [0, 9], [0.0, 1.0]))",
    },
    "numpy_objects": {
        "cause": "astype(object)",
        "remedy": NUMPY,
        "broken": "return x * len(x.numpy().astype(object))",
        "cured": "return x * len(x)",
    },
}
logged = []
last = torch.zeros(())
