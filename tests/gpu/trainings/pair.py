"""Two ranks as nanochat trains: FP8 products, a Muon whose step is compiled, evaluations.

``torchrun --nproc-per-node=2 pair.py FILE [SECONDS]``: rank 0 writes to FILE the time of each
event, by the clock: the begin of the process, the end of each step and of each evaluation.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import float8
import torch
import torch.distributed as dist
from benchmarks.gpt import GPT, Size

import warmwatch.auto  # noqa: F401

EVERY, VALIDATIONS = 40, 4
rank = int(os.environ["LOCAL_RANK"])
file, seconds = Path(sys.argv[1]), float(sys.argv[2])
events = [("begin", time.time())]
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(rank)


@torch.compile(dynamic=False, fullgraph=True)
def orthogonal(gradient: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz iterations; a matrix with more rows than columns is transposed."""
    x = gradient.bfloat16()
    x = x.mT if gradient.size(-2) > gradient.size(-1) else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-6)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.mT if gradient.size(-2) > gradient.size(-1) else x


class Muon(torch.optim.Optimizer):
    """Averages the ranks' gradients and makes each matrix of them orthogonal."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self) -> None:
        """One step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
                parameter.add_(orthogonal(parameter.grad), alpha=-group["lr"])


model = GPT(Size(layers=8, heads=8, width=1024)).cuda()
float8.convert(model.blocks)
compiled = torch.compile(model, dynamic=False)
matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
rest = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
optimizers = [torch.optim.AdamW(rest, lr=1e-4, fused=True), Muon(matrices)]


def loss_of(batch: int) -> torch.Tensor:
    tokens = torch.randint(50304, (2, batch, 1024), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        return compiled(*tokens)


step, over = 0, torch.zeros((), device="cuda")
while not over:
    loss = loss_of(8)
    loss.backward()
    for parameter in rest:
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    for optimizer in optimizers:
        optimizer.step()
    model.zero_grad(set_to_none=True)
    loss.item()
    events.append(("step", time.time()))
    step += 1
    if step % EVERY == 0:
        model.eval()
        with torch.no_grad():
            for _ in range(VALIDATIONS):
                loss_of(4).item()
        model.train()
        events.append(("evaluation", time.time()))
        over.fill_(time.time() > events[1][1] + seconds)  # after the first step
        dist.broadcast(over, 0)
if rank == 0:
    file.write_text(json.dumps(events))
dist.destroy_process_group()
