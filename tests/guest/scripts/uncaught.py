"""An exception in the optimizer's step that nobody catches: its traceback and exit code."""
# exit: 1
# steps: 1

import torch


class Failing(torch.optim.SGD):
    calls = 0

    def step(self, closure=None):
        self.calls += 1
        if self.calls == 2:
            raise ValueError("in step")
        return super().step(closure)


weight = torch.nn.Parameter(torch.ones(4))
optimizer = Failing([weight], lr=0.1)
compiled = torch.compile(lambda x: (x * weight).sum(), backend="eager")
while True:
    compiled(torch.ones(4)).backward()
    optimizer.step()
