"""A method that keeps its ``locals()``, and drops what a step made before the next one."""
# steps: 10

import weakref

import optimizers
import torch


class Trainer:
    def train(self):
        config = locals()
        model = optimizers.model()
        compiled = torch.compile(model, backend="eager", dynamic=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for size in range(2, 12):  # up to the recompile limit and beyond
            logits = compiled(torch.randn(size, 4))
            logits.square().mean().backward()
            optimizer.step()
            kept, logits = weakref.ref(logits), None
            print(size, "freed:", kept() is None, "config:", sorted(config))


Trainer().train()
