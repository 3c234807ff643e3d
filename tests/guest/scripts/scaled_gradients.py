"""GradScaler on the CPU, autocast, clipping, and a step that the scaler skips."""
# steps: 5

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for number in range(6):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=number != 2):
        loss = compiled(torch.randn(8, 4)).float().square().mean()
    scaler.scale(loss * (float("inf") if number == 3 else 1)).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(loss.item(), scaler.get_scale())
