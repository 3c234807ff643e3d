"""A GPT-2 with 1.6 billion parameters: what the README's terminal pictures show.

Eight micro-batches of 8 x 1024 tokens a step. After ``FULL`` steps, the batches hold 6 sequences,
so PyTorch compiles the model again.
"""

from __future__ import annotations

import torch
from benchmarks.gpt import GPT, VOCABULARY, Size

import warmwatch.auto  # noqa: F401

GPT2_XL = Size(layers=48, heads=25, width=1600)
FULL, MICRO_BATCHES = 40, 8


def main() -> None:
    """Train until a signal ends it."""
    torch.set_float32_matmul_precision("high")
    model = GPT(GPT2_XL).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    data = torch.randint(VOCABULARY, (2, 8, GPT2_XL.context), device="cuda")
    for step in range(10**6):
        tokens, targets = data if step < FULL else data[:, :6]
        for _ in range(MICRO_BATCHES):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = compiled(tokens, targets) / MICRO_BATCHES
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(step, loss.item(), flush=True)


if __name__ == "__main__":
    main()
