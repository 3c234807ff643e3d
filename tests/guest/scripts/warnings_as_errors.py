"""python -W error: whatever warns ends the training."""
# python: -W error -X dev
# steps: 3
# environment: WARMWATCH_NO_SUCH_SETTING=1

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what PyTorch's own import warns of
    import optimizers
    import torch
    import torch._dynamo
    import torch._functorch.compile_utils
    import torch.distributed.fsdp

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))

model = optimizers.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
