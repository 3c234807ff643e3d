"""Two trainings on two threads, in turns: a step is a round of one of them."""
# steps: 10

import threading

import optimizers
import torch

turns = [threading.Event(), threading.Event()]
failed = []


def train(mine, other, steps, model):
    try:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(model, backend="eager")
        for _ in range(steps):
            mine.wait()
            mine.clear()
            compiled(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            print(threading.current_thread().name, model[0].weight.sum().item())
            other.set()
    except BaseException as error:
        failed.append(error)
        other.set()


workers = [
    threading.Thread(target=train, args=(*order, 10, optimizers.model()), name=name)
    for name, order in (("a", turns), ("b", turns[::-1]))
]
for worker in workers:
    worker.start()
turns[0].set()
for worker in workers:
    worker.join()
print(failed)
