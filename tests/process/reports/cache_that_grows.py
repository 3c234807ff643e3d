"""A cache of keys is a buffer that grows with each token: each size compiles."""

import torch
from _loop import CURED, net, steps

SOURCE = "rasbt/LLMs-from-scratch#705"
EXPECT = {
    "category": "shape",
    "names": ["`self.keys`: dim 1 went from 1 to 2"],
    "remedy": ["Keep the shape of the parameter or buffer", "force_parameter_static_shapes"],
    "recompiles": 5,
    "cured": 1,
}
if CURED:
    torch._dynamo.config.force_parameter_static_shapes = False


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.ones(2, 1, 4))

    def forward(self, x):
        self.keys = torch.cat([self.keys, x], 1)
        return net(x) @ self.keys.transpose(1, 2)


model = torch.compile(Attention(), backend="eager")
steps(6, lambda _: model(torch.ones(2, 1, 4)))
