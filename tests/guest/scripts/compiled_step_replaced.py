"""A compiled step of each shape of optimizer: the attribute replaced."""

import optimizers
import torch

for fullgraph in (False, True):
    for name, make in optimizers.shapes().items():
        torch._dynamo.reset()
        model = optimizers.model()
        optimizer = make(list(model.parameters()))
        how = {"backend": "eager", "fullgraph": fullgraph}
        optimizer.step = torch.compile(optimizer.step, **how)
        try:
            for _ in range(4):
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        except Exception as error:
            print(name, fullgraph, type(error).__name__, str(error).splitlines()[0])
        print(name, fullgraph, [p.sum().item() for p in model.parameters()])
