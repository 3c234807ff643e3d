"""The collector frozen, switched off, and with callbacks of the training."""
# steps: 6

import gc
import weakref

import optimizers
import torch

gc.disable()
gc.freeze()
phases = []
gc.callbacks.append(lambda phase, info: phases.append(phase))
ended = []
for number in range(3):
    model = optimizers.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        loss = compiled(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item(), gc.isenabled())
    weakref.finalize(model, ended.append, f"model {number}")
    weakref.finalize(optimizer, ended.append, f"optimizer {number}")
    weakref.finalize(model[0].weight, ended.append, f"weight {number}")
    del model, optimizer, compiled, loss
    torch._dynamo.reset()
    gc.collect()
    print(ended)
gc.enable()
gc.unfreeze()
print(len(phases) > 0, len(gc.callbacks))
