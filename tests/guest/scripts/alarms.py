"""Signal handlers: a timer that raises into the training, and one that only counts."""
# steps: 300

import signal

import torch

count = 0


class OverTimeError(Exception):
    pass


def tick(number, frame):
    global count
    count += 1


def raises(number, frame):
    raise OverTimeError


weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.001)
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(300):
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
signal.setitimer(signal.ITIMER_REAL, 0)
print(weight.sum().item(), count > 0)
signal.signal(signal.SIGALRM, raises)
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    while True:
        torch.ones(10).sum()
except OverTimeError:
    print("over time")
print(signal.getitimer(signal.ITIMER_REAL)[0])
