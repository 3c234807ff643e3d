"""KeyboardInterrupt in a step, in the compiler and in a weak reference's callback."""
# core
# exit: -2
# steps: 4

import os
import signal

import optimizers
import torch

model = optimizers.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def interrupts(graph, inputs):
    os.kill(os.getpid(), signal.SIGINT)
    return graph.forward


for number in range(4):
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    try:
        torch.compile(lambda x, n=number: model(x) + n, backend=interrupts)(torch.ones(2, 4))
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted")


def hook(optimizer, args, kwargs):
    raise KeyboardInterrupt


optimizer.register_step_pre_hook(hook)
optimizer.step()
