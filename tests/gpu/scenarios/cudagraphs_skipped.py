"""CUDA graphs are requested, and skipped because the graph changes one of its inputs."""

import torch
from _gpu import finish, mark, model

EXPECT = {
    "states": "compiling warming warm",
    "cold": True,
    "traced": True,  # the record of what is tuned at run time does not tell when each was
    "cannot_know": {"trace": "the trace has one record for all kernels that are tuned"},
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
seen = torch.zeros(256, device="cuda")


@torch.compile(mode="reduce-overhead")
def forward(inputs: torch.Tensor) -> torch.Tensor:
    """It counts what it saw, in place."""
    seen.add_(inputs.detach().mean(0))
    return net(inputs + seen).square().mean()


for _ in range(8):
    loss = forward(torch.randn(64, 256).cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
