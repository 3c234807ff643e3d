"""A training that reads and clears PyTorch's counters and wraps its callbacks itself."""
# steps: 4

import optimizers
import torch
from torch._dynamo import callback, utils

calls = []
callback.on_compile_start(lambda *args: calls.append("start"))
callback.on_compile_end(lambda *args: calls.append("end"))
model = optimizers.model()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
original = utils.log_compilation_event
utils.log_compilation_event = lambda *args, **kwargs: (
    calls.append("event"),
    original(*args, **kwargs),
)
for number in range(4):
    loss = compiled(torch.randn(2 + number, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), dict(utils.counters["stats"]), len(utils.compilation_time_metrics))
    utils.counters.clear()
utils.log_compilation_event = original
print(calls, len(callback.callback_handler.start_callbacks) > 0)
print(torch._dynamo.utils.compile_times("csv")[0][:3])
