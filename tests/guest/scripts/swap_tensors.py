"""Conversions that swap tensors: to(), load_state_dict(assign=True), swap_tensors itself."""
# torch: 2.11
# steps: 6

import optimizers
import torch

torch.__future__.set_swap_module_params_on_conversion(True)
model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    compiled(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.to(torch.float64)
    model.to(torch.float32)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    first, *_ = model.parameters()
    torch.utils.swap_tensors(first, torch.nn.Parameter(first.detach() * 0.5))
    print(first.sum().item())
