"""A GPT, and a plain training loop of one with 124M parameters: what the GPU benchmarks train.

``python -m benchmarks.gpt MODE STEPS``: prints a JSON line when the first step is over and one at
the end. MODE is ``eager`` or a mode of ``torch.compile``. The agent is attached where the
environment sets BENCHMARK_AGENT.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import NamedTuple

if os.environ.get("BENCHMARK_AGENT"):
    import warmwatch.auto  # noqa: F401

import torch
from torch.nn import functional as F  # noqa: N812 - PyTorch's own idiom

VOCABULARY, CONTEXT, BATCH = 50304, 1024, 16


class Size(NamedTuple):
    """Sizes of a GPT; the default has 124M parameters."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = VOCABULARY
    context: int = CONTEXT


GPT2 = Size()


class Block(torch.nn.Module):
    """Causal attention and an MLP, each after a norm and around a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of ``[batch, context, width]``, and so the result."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class GPT(torch.nn.Module):
    """Tokens to a loss; the head shares the embedding's weight."""

    def __init__(self, size: Size = GPT2) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(size.vocabulary, size.width)
        self.places = torch.nn.Embedding(size.context, size.width)
        self.blocks = torch.nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm = torch.nn.LayerNorm(size.width)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Token ids of ``[batch, context]`` and their successors; the mean loss."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    """The model, compiled in ``mode``, its optimizer, and one batch of random tokens."""

    def __init__(self, mode: str) -> None:
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        model = GPT().cuda()
        self.parameters = sum(p.numel() for p in model.parameters())
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self._model = model if mode == "eager" else torch.compile(model, mode=mode)
        self._batch = torch.randint(VOCABULARY, (2, BATCH, CONTEXT), device="cuda")

    def step(self) -> torch.Tensor:
        """The loss of one step; returns when the step is queued, before the GPU has finished it."""
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self._model(*self._batch)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def seconds(self, steps: int) -> float:
        """Seconds that ``steps`` steps take, including the GPU's work."""
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return time.perf_counter() - began


def main(mode: str, steps: int) -> None:
    """Train, and print the durations of the first step and the later ones."""
    trainer = Trainer(mode)
    first = trainer.seconds(1)
    memory = torch.cuda.max_memory_allocated()
    _say(first=first, first_memory_bytes=memory, parameters=trainer.parameters)
    next_nine = trainer.seconds(9)
    torch.cuda.reset_peak_memory_stats()
    each = sorted(trainer.seconds(20) / 20 for _ in range(max(1, (steps - 10) // 20)))
    peak = torch.cuda.max_memory_allocated()
    _say(next_nine=next_nine, step=each[len(each) // 2], memory_bytes=peak, torch=torch.__version__)
    sys.stdin.readline()  # until what watches has seen the end


def _say(**values: float | str) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
