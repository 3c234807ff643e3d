"""An optimizer for each parameter, stepped on autograd's thread; the main thread saves for 5 s."""

import io
import threading
import time

import torch
from _gpu import batch, finish, mark, model, pauses

EXPECT = {"states": "compiling warming warm"}


class Disk(io.BytesIO):
    """One that takes its time."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if not self.tell():
            time.sleep(5)
        return super().write(data)


net = model()
compiled = torch.compile(net)
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in net.parameters()}
threads = set()


def update(parameter: torch.Tensor) -> None:
    threads.add(threading.get_ident())
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for _ in range(2):
    for _ in range(12):
        loss = compiled(batch()).square().mean()
        loss.backward()
        mark(loss)
    with pauses():
        torch.save(net.state_dict(), Disk())
loss = compiled(batch()).square().mean()
loss.backward()
mark(loss)
assert threading.get_ident() not in threads, "autograd has a thread of its own"
finish()
