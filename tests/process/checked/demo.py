"""The demo's training as CI checks it: its graphs are not compiled further, and no monitor runs."""

import functools

import torch

from warmwatch_monitor.commands import demo_training as train

train.WATCHED_SECONDS = 0.0
torch.compile = functools.partial(torch.compile, backend="eager")
train.main()
