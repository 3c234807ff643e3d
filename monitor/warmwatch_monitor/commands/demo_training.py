"""A small compiled training, as a user would write it; only the first import is for Warmwatch.

A character transformer learns generated sums. After a while the sequences get shorter, which
recompiles the model. ``warmwatch demo`` runs it.
"""

import itertools
import time

import warmwatch.auto  # noqa: F401 - attaches the agent

import torch  # isort: skip
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LAYERS, BATCH = 96, 4, 2, 8
LONG, SHORT = 64, 48
WARM_AFTER = 4  # steps: the first compiles, and three clean ones make it warm
WATCHED_SECONDS = 6.0  # at full speed after that, so that the user sees it


class Block(nn.Module):
    """Causal attention and an MLP, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Characters in, logits of the next characters out."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, WIDTH)
        self.place = nn.Embedding(LONG, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.embed(tokens) + self.place(places)))


def text() -> torch.Tensor:
    """Sums, one after another, as character codes."""
    sums = "".join(f"{a}+{b}={a + b};" for a in range(40) for b in range(40))
    return torch.tensor([ord(c) - ord("+") for c in sums])


def main() -> None:
    torch.manual_seed(0)
    data = text()
    model = Model(int(data.max()) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = torch.compile(model)
    for length in (LONG, SHORT):
        for step in itertools.count():
            if step == WARM_AFTER:
                since = time.monotonic()
            if step > WARM_AFTER and time.monotonic() - since > WATCHED_SECONDS:
                break
            starts = torch.randint(len(data) - length - 1, (BATCH,))
            batch = torch.stack([data[s : s + length + 1] for s in starts])
            logits = compiled(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"sequences of {length}: loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
