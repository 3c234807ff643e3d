"""Models whose floating-point operations are known: a decoder and a residual network."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own idiom
from torch import nn

BATCH, CONTEXT, WIDTH, HEADS, LAYERS, VOCABULARY = 4, 128, 128, 4, 1, 512


class Attention(nn.Module):  # type: ignore[misc]
    """Causal self-attention; ``groups``: heads of keys and values."""

    def __init__(self, groups: int, *, bias: bool) -> None:
        super().__init__()
        self.groups = groups
        self.q = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.kv = nn.Linear(WIDTH, 2 * WIDTH * groups // HEADS, bias=bias)
        self.out = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.groups, -1).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Gated(nn.Module):  # type: ignore[misc]
    """The feed-forward part of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):  # type: ignore[misc]
    """A small GPT or Llama with its loss."""

    def __init__(self, *, llama: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        norm = nn.RMSNorm if llama else nn.LayerNorm
        wide = (nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.layers = nn.ModuleList()
        for _ in range(LAYERS):
            attention = Attention(2 if llama else HEADS, bias=not llama)
            feed = Gated() if llama else nn.Sequential(*map(_again, wide))
            self.layers.append(nn.ModuleList((norm(WIDTH), attention, norm(WIDTH), feed)))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for first, attention, second, feed in self.layers:
            x = x + attention(first(x))
            x = x + feed(second(x))
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def _again(layer: Any) -> Any:
    return nn.Linear(layer.in_features, layer.out_features) if hasattr(layer, "weight") else layer


class Residual(nn.Module):  # type: ignore[misc]
    """Bottlenecks of ResNet-50 behind its first convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
                *(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
                *(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x.mean((2, 3))).square().mean()


def tokens() -> Any:
    return torch.randint(VOCABULARY, (BATCH, CONTEXT))


def by_hand(model: Any) -> float:
    """6 for each parameter of a product and token, and the attention."""
    parameters = sum(one.numel() for one in model.parameters()) - model.embed.weight.numel()
    return float((6 * parameters + 12 * LAYERS * WIDTH * CONTEXT) * BATCH * CONTEXT)
