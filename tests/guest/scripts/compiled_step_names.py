"""A compiled step whose closures have the names that PyTorch would give to new variables."""
# steps: 6

import optimizers
import torch

model = optimizers.model()


class Own(torch.optim.Optimizer):  # Dynamo inlines the wrapper of its ``step``
    def step(self):
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.add_(parameter.grad, alpha=-0.1)


optimizer_0 = Own(model.parameters(), {})


def trains(optimizer_0):
    @torch.compile(backend="eager")
    def free():
        total = model(torch.ones(8, 4)).sum()
        optimizer_0.step()
        return total

    return free


@torch.compile(backend="eager")
def cells(given):
    optimizer_0 = optimizer_1 = optimizer_2 = given
    total = model(torch.ones(8, 4)).sum()
    given.step()
    return total, lambda: (optimizer_0, optimizer_1, optimizer_2)


free = trains(optimizer_0)
for _ in range(3):
    model(torch.ones(8, 4)).square().mean().backward()
    print(free().item())
    total, held = cells(optimizer_0)
    print(total.item(), all(one is optimizer_0 for one in held()))
    optimizer_0.zero_grad()
