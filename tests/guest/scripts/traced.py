"""sys.settrace and sys.setprofile, as coverage and debuggers set them."""
# steps: 4

import sys
import threading

import optimizers
import torch

lines = set()


def trace(frame, event, argument):
    if frame.f_code.co_filename == __file__ and event == "line":
        lines.add(frame.f_lineno)
    return trace


model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    sys.settrace(trace if number % 2 else None)
    threading.settrace(trace if number % 2 else None)
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), sys.gettrace() is (trace if number % 2 else None))
sys.settrace(None)
threading.settrace(None)
calls = []
sys.setprofile(lambda frame, event, argument: calls.append(event))
compiled(torch.ones(8, 4))
sys.setprofile(None)
print(sorted(lines), len(calls) > 0)
