"""TORCH_LOGS=recompiles,graph_breaks and TORCHDYNAMO_VERBOSE, as users set them."""
# environment: TORCH_LOGS=recompiles,graph_breaks
# environment: TORCHDYNAMO_VERBOSE=1
# steps: 8

import optimizers
import torch

model = optimizers.model()


def forward(x, scale):
    y = model(x) * scale
    print("a break")
    return y.square().mean()


compiled = torch.compile(forward, backend="eager")
optimizer = optimizers.Sign(model.parameters())
step = torch.compile(optimizer.step, backend="eager")
for number in range(8):
    loss = compiled(torch.randn(2 + number % 4, 4), number)
    loss.backward()
    step()
    optimizer.zero_grad()
    print(loss.item())
