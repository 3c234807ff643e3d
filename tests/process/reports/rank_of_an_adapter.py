"""A second LoRA adapter of another rank is loaded into the compiled model."""

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/diffusers#9453"
EXPECT = {"category": "shape", "names": ["lora_A"], "remedy": [], "recompiles": 1, "cured": 0}


class Adapted(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.base = net
        self.load(rank)

    def load(self, rank):
        self.lora_A = torch.nn.Parameter(torch.ones(16 if CURED else rank, 4))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.t()).sum(1, keepdim=True)


adapted = Adapted(8)
model = torch.compile(adapted, backend="eager")


def loss_of(number):
    if number == 4:
        adapted.load(16)
    return model(torch.ones(2, 4))


steps(8, loss_of)
