"""A generator and a discriminator, each with an optimizer: one iteration is one step."""

import torch
from _common import batch, finish, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    # judge and make are frames of one function; then judge's input has a gradient
    "categories": "new_instance requires_grad",
    "late_steps": (1,),
    "limits": "the discriminator's optimizer marks the steps; what the generator compiles after "
    "its call is in the next step, so warm comes one step later",
}

generator = torch.nn.Linear(8, 8)
discriminator = small()
make, judge = torch.compile(generator), torch.compile(discriminator)
to_judge = torch.optim.SGD(discriminator.parameters(), lr=0.01)
to_make = torch.optim.SGD(generator.parameters(), lr=0.01)
for _ in range(8):
    judge(batch()).square().mean().backward()
    to_judge.step()
    to_judge.zero_grad()
    loss = judge(make(batch())).square().mean()
    loss.backward()
    to_make.step()
    to_make.zero_grad()
    mark(loss)
finish()
