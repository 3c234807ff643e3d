"""A compiled step of one's own optimizer, in four ways, with fullgraph and without."""
# core

import optimizers
import torch


def ways(optimizer, model, how):
    yield "method", torch.compile(optimizer.step, **how)
    yield "lambda", torch.compile(lambda: optimizer.step(), **how)

    def with_model():
        y = model(torch.ones(2, 4)).sum()
        optimizer.step()
        return y

    yield "with the model", torch.compile(with_model, **how)
    optimizer.step = torch.compile(optimizer.step, **how)
    yield "replaced", optimizer.step


for fullgraph in (False, True):
    model = optimizers.model().requires_grad_(False)
    optimizer = optimizers.Sign(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.1)
    for name, step in ways(optimizer, model, {"backend": "eager", "fullgraph": fullgraph}):
        torch._dynamo.reset()
        for _ in range(3):
            step()
        print(name, fullgraph, [p.sum().item() for p in model.parameters()])
