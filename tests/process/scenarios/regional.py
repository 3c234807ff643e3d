"""Regional compilation of three equal blocks: two graphs serve all of them.

The first block's input is a batch, which needs no gradient, and that of the others does.
"""

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm", "categories": "requires_grad"}


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x).relu()


blocks = [Block() for _ in range(3)]
for block in blocks:
    block.compile()
model = torch.nn.Sequential(*blocks, small())
train(model, torch.optim.AdamW(model.parameters()), steps=8)
finish()
