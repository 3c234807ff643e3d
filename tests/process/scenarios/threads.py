"""Three threads compile one model each at the same time, before the training begins."""

import threading
from typing import Any

import torch
from _common import finish, small, train
from torch._inductor.compile_fx import compile_fx

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "categories": "new_instance new_instance new_instance",
    "on": {
        "2.6": {"lacks": "2.6 fails now and then where threads compile at once"},
        "2.8": {"lacks": "2.8 fails now and then where threads compile at once, without the agent"},
        "2.11": {"lacks": "its CUDA build crashes in a second thread where there is no GPU"},
    },
}

WIDTHS = (5, 6, 7)
entered = [threading.Event() for _ in WIDTHS]
models = [small(width) for width in WIDTHS]


def compile_one(turn: int) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        entered[turn].set()
        return compile_fx(graph, inputs)

    compiled = torch.compile(models[turn], backend=backend)
    compiled(torch.ones(4, WIDTHS[turn])).sum().backward()


threads = [threading.Thread(target=compile_one, args=(turn,)) for turn in range(len(WIDTHS))]
for thread, event in zip(threads, entered, strict=True):
    thread.start()
    event.wait()  # so that they come in one order, each while the one before is at it
for thread in threads:
    thread.join()
model = small()
train(torch.compile(model), torch.optim.SGD(model.parameters(), lr=0.01), steps=8)
finish()
