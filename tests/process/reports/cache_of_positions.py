"""Rotary embeddings ask whether their cached tensor is one of inference mode."""

import torch
from _loop import CURED, net, steps

SOURCE = "nomic-ai/contrastors#83"
EXPECT = {
    "names": ["is_inference"],
    "remedy": ["outside of the compiled function", "before the first compiled call"],
    "recompiles": 1,
    "breaks": 1,
    "cured": 0,
}


class Rotary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cosine = torch.cos(torch.arange(4.0)) if CURED else None

    def forward(self, x):
        if not CURED and (self.cosine is None or self.cosine.is_inference()):
            self.cosine = torch.cos(torch.arange(4.0))
        return net(x) * self.cosine


model = torch.compile(Rotary(), backend="eager")
steps(6, lambda _: model(torch.ones(2, 4)))
