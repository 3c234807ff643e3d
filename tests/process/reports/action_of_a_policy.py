"""A policy acts at random while it collects, and deterministically in an evaluation."""

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/lerobot#2397"
EXPECT = {
    "category": "python_value",
    "names": ["`deterministic` went from False to"],
    "remedy": ["compile one function for each of few values"],
    "recompiles": 1,
    "cured": 0,
}


def act(observation, deterministic):
    mean = net(observation)
    return torch.tanh(mean if deterministic else mean + torch.randn_like(mean))


ways = [torch.compile(act, backend="eager") for _ in range(2)]
if CURED:
    ways = [
        torch.compile(lambda observation: act(observation, False), backend="eager"),
        torch.compile(lambda observation: act(observation, True), backend="eager"),
    ]


def loss_of(number):
    deterministic = number % 5 == 4
    given = () if CURED else (deterministic,)
    return ways[deterministic](torch.ones(4, 4), *given)


steps(12, loss_of)
