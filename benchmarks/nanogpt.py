"""The training that ``benchmarks.comparison`` runs beside each tool: a small GPT on the CPU.

``python benchmarks/nanogpt.py FILE STEPS``: half-way the batch grows, so PyTorch compiles again.
FILE gets the truth as JSON: when each compilation began and ended, by PyTorch's own callbacks, and
the end and the CPU time of each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

if os.environ.get("BENCHMARK_AGENT"):
    import warmwatch.auto  # noqa: F401

import torch
from torch._dynamo import callback
from torch.nn import functional as F  # noqa: N812 - PyTorch's own idiom
from torch.utils.data import DataLoader

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 1, 4, 128, 512, 64
BATCH, LARGER_BATCH = 8, 12


class Block(torch.nn.Module):
    """Causal attention and an MLP, each after a norm and around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of ``[batch, context, width]``, and so the result."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class GPT(torch.nn.Module):
    """Tokens to a loss; the head shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.places = torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Token ids of ``[batch, context]`` and their successors; the mean loss."""
        x = self.tokens(tokens) + self.places(torch.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main(file: str, steps: int) -> None:
    """Train, and write when it compiled and how long each step took."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    compiling: list[list[float]] = []
    callback.on_compile_start(lambda *_: compiling.append([time.time()]))
    callback.on_compile_end(lambda *_: compiling[-1].append(time.time()))
    model = GPT()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trace_step: Any = nullcontext
    if os.environ.get("BENCHMARK_TRACEML"):
        import traceml_ai as traceml

        traceml.init(mode="auto")
        trace_step = traceml.trace_step
    data = torch.randint(VOCABULARY, (steps * LARGER_BATCH, 2, CONTEXT))
    ended = []
    for batch in (BATCH, LARGER_BATCH):
        for pairs in islice(DataLoader(data, batch_size=batch), steps // 2):
            with trace_step(compiled):
                compiled(*pairs.unbind(1)).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            ended.append((time.time(), time.process_time()))
    truth = {"compiling": compiling, "steps": ended, "pid": os.getpid()}
    Path(file).write_text(json.dumps(truth))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
