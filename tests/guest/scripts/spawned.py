"""Spawned children that train."""
# fresh
# seconds: 900
# steps: 2 2

import multiprocessing

import optimizers
import torch


def child(number, queue):
    model = optimizers.model()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = compiled(torch.ones(2 + number, 4)).square().mean()
        loss.backward()
        optimizer.step()
    queue.put((number, loss.item()))


if __name__ == "__main__":
    torch.manual_seed(0)  # a new Python seeds it by chance
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for number in range(2):
        process = context.Process(target=child, args=(number, queue))
        process.start()
        print(queue.get())
        process.join()
        print(process.exitcode)
