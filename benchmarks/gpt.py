"""A GPT of 124M parameters in a plain training loop: what the GPU benchmarks train.

``python -m benchmarks.gpt MODE STEPS``: prints a JSON line when the first step is over and one at
the end. MODE is ``eager`` or a mode of ``torch.compile``. The agent is attached where the
environment sets BENCHMARK_AGENT.
"""

from __future__ import annotations

import json
import os
import sys
import time

if os.environ.get("BENCHMARK_AGENT"):
    import warmwatch.auto  # noqa: F401

import torch
from torch.nn import functional as F  # noqa: N812 - PyTorch's own idiom

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT, BATCH = 12, 12, 768, 50304, 1024, 16


class Block(torch.nn.Module):
    """Causal attention and an MLP, each after a norm and around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
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
        x = self.tokens(tokens) + self.places(torch.arange(CONTEXT, device=tokens.device))
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
        """One training step's loss; it returns when it is queued, not when the GPU has done it."""
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self._model(*self._batch)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def seconds(self, steps: int) -> float:
        """How long ``steps`` steps take, the GPU's work included."""
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
