"""Each expert takes its tokens with ``torch.where``: how many these are depends on their values."""

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/transformers#30793"
EXPECT = {
    "names": ["aten.nonzero"],
    "remedy": ["capture_dynamic_output_shape_ops"],
    "recompiles": 0,
    "graphs": 0,
    "cured": 1,
}
experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
gate = torch.nn.Linear(4, 3)
torch._dynamo.config.capture_dynamic_output_shape_ops = CURED


@torch.compile(backend="eager")
def loss_of(x):
    x = net(x)
    weights, chosen = gate(x).softmax(-1).max(-1)
    result = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        (tokens,) = torch.where(chosen == number)
        result.index_add_(0, tokens, expert(x[tokens]) * weights[tokens, None])
    return result


steps(6, lambda _: loss_of(torch.randn(16, 4)))
