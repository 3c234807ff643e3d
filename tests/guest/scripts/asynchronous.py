"""Steps in coroutines and generators, with context variables."""
# steps: 6

import asyncio
import contextvars

import optimizers
import torch

who = contextvars.ContextVar("who")
model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


async def train(name):
    who.set(name)
    for _ in range(3):
        loss = compiled(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(who.get(), loss.item())
        await asyncio.sleep(0)


async def main():
    await asyncio.gather(train("a"), train("b"))


asyncio.run(main(), debug=True)
