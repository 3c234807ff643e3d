"""A package of AOTInductor, called in a compiled function for the first time."""
# seconds: 600

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
program = torch.export.export(model, (torch.ones(2, 4),))
loaded = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
compiled = torch.compile(lambda x: loaded(x) + 1, backend="eager")
for _ in range(3):
    print(compiled(torch.ones(2, 4)).sum().item())
