"""A compiled step of each shape of optimizer: in one function with the forward."""

import optimizers
import torch

for fullgraph in (False, True):
    for name, make in optimizers.shapes().items():
        torch._dynamo.reset()
        model = optimizers.model()
        optimizer = make(list(model.parameters()))
        how = {"backend": "eager", "fullgraph": fullgraph}
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.1)

        def forward_and_step(x):
            y = model(x).sum()
            optimizer.step()
            return y + next(model.parameters()).sum()

        compiled = torch.compile(forward_and_step, **how)
        try:
            for _ in range(4):
                with torch.no_grad():
                    print(name, compiled(torch.ones(2, 4)).item())
        except Exception as error:
            print(name, fullgraph, type(error).__name__, str(error).splitlines()[0])
        print(name, fullgraph, [p.sum().item() for p in model.parameters()])
