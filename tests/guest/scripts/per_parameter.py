"""An optimizer for each parameter, stepped in a loop."""
# steps: 5

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="aot_eager")
steppers = [optimizers.Sign([p]) for p in model.parameters()]
for _ in range(5):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    for stepper in steppers:
        stepper.step()
        stepper.zero_grad()
    print(loss.item())
