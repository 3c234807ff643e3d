"""A compiled step of each shape of optimizer: in a lambda, the method, the attribute replaced."""
# seconds: 900

import optimizers
import torch


def compiled_step(way, optimizer, how):
    if way == "lambda":
        return torch.compile(lambda: optimizer.step(), **how)
    step = torch.compile(optimizer.step, **how)
    if way == "replaced":
        optimizer.step = step
    return step


for fullgraph in (False, True):
    for way in ("lambda", "method", "replaced"):
        for name, make in optimizers.shapes().items():
            torch._dynamo.reset()
            model = optimizers.model()
            optimizer = make(list(model.parameters()))
            step = compiled_step(way, optimizer, {"backend": "eager", "fullgraph": fullgraph})
            try:
                for _ in range(4):
                    model(torch.randn(8, 4)).square().mean().backward()
                    step()
                    optimizer.zero_grad()
            except Exception as error:
                print(way, name, fullgraph, type(error).__name__, str(error).splitlines()[0])
            print(way, name, fullgraph, [p.sum().item() for p in model.parameters()])
