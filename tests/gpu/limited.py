"""A training that one thing limits: ``python limited.py KIND FILE [SECONDS]``.

Trains for SECONDS after its warm-up. FILE then gets the truth: the seconds of a step by the clock,
and the seconds of kernels in a step by PyTorch's profiler, in all and by kind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import distributed, nn

import warmwatch
import warmwatch.auto

WARM_STEPS, PROFILED_STEPS = 6, 10
SAVE_EVERY = EVALUATE_EVERY = 20
KINDS_OF_KERNELS = {
    "communication": ("nccl",),
    "matmul": ("gemm", "nvjet", "cutlass", "conv", "xmma", "flash", "splitK"),
}
Step = Callable[[], torch.Tensor]


def device() -> torch.device:
    """Of this rank; DEVICE=cpu tries the script without a GPU."""
    return torch.device(os.environ.get("DEVICE", "cuda"), int(os.environ.get("LOCAL_RANK", "0")))


def optimizing(net: nn.Module, loss: Callable[[nn.Module], torch.Tensor]) -> Step:
    """A step of SGD."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)

    def step() -> torch.Tensor:
        value = loss(net)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value

    return step


def mlp(width: int, layers: int) -> nn.Module:
    """Linear layers with an activation between them."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width, device=device()), nn.ReLU()]
    return nn.Sequential(*parts)


def compute() -> Step:
    """Large matrix products."""
    net = torch.compile(mlp(8192, 4).to(torch.bfloat16))
    x = torch.randn(8192, 8192, device=device(), dtype=torch.bfloat16)
    return optimizing(net, lambda net: net(x).float().square().mean())


class Stream(nn.Module):
    """Reads and writes a gigabyte, with hardly any arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2**28, device=device()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum()


def memory() -> Step:
    """Elementwise operations on a vector of 1 GiB."""
    net, x = torch.compile(Stream()), torch.randn(2**28, device=device())
    return optimizing(net, lambda net: net(x))


def host() -> Step:
    """Hundreds of tiny kernels."""
    net, x = torch.compile(mlp(64, 150)), torch.randn(64, 64, device=device())
    return optimizing(net, lambda net: net(x).square().mean())


def host_eager() -> Step:
    """The same, eagerly."""
    net, x = mlp(64, 150), torch.randn(64, 64, device=device())
    return optimizing(net, lambda net: net(x).square().mean())


def graphs() -> Step:
    """The same in CUDA graphs: tiny kernels, but the host no longer launches each."""
    net = torch.compile(mlp(64, 150), mode="reduce-overhead")
    x = torch.randn(64, 64, device=device())
    return optimizing(net, lambda net: net(x).square().mean())


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Takes 20 ms for an item."""

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.randn(2048)


def loaded(dataset: torch.utils.data.Dataset[torch.Tensor], batch: int) -> Iterator[torch.Tensor]:
    """Its batches, for ever."""
    while True:
        yield from torch.utils.data.DataLoader(dataset, batch_size=batch)


def loader() -> Step:
    """A loader that takes longer than the step."""
    batches = loaded(Slow(), 2)
    net = torch.compile(mlp(2048, 8))
    return optimizing(net, lambda net: net(next(batches).to(device())).square().mean())


def hidden_loader() -> Step:
    """A loader whose time the GPU's queue hides: the loop never waits for the GPU."""
    batches = loaded(Slow(), 1)
    net = torch.compile(mlp(8192, 4).to(torch.bfloat16))
    x = torch.randn(16384, 8192, device=device(), dtype=torch.bfloat16)

    def loss(net: nn.Module) -> torch.Tensor:
        next(batches)
        return net(x).float().square().mean()

    return optimizing(net, loss)


def saving() -> Step:
    """A checkpoint of 200 MB after every 20 steps of 50 ms."""
    net = torch.compile(mlp(2048, 12))
    x, steps = torch.randn(64, 2048, device=device()), iter(range(10**9))

    def loss(net: nn.Module) -> torch.Tensor:
        if next(steps) % SAVE_EVERY == SAVE_EVERY - 1:
            with tempfile.TemporaryFile() as file:
                torch.save(net.state_dict(), file)
        time.sleep(0.01)
        return net(x).square().mean()

    return optimizing(net, loss)


def evaluation() -> Step:
    """An evaluation as long as the 20 steps before it."""
    net = torch.compile(mlp(2048, 12))
    x, steps = torch.randn(64, 2048, device=device()), iter(range(10**9))

    def loss(net: nn.Module) -> torch.Tensor:
        if next(steps) % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            with warmwatch.evaluating(), torch.no_grad():
                for _ in range(EVALUATE_EVERY):
                    net(x).sum().item()
                    time.sleep(0.01)
        time.sleep(0.01)
        return net(x).square().mean()

    return optimizing(net, loss)


def communication() -> Step:
    """All-reduces of 1 GB of gradients, on two GPUs, of a model that computes next to nothing."""
    net = mlp(4096, 16)
    parallel = nn.parallel.DistributedDataParallel(net)
    compiled, x = torch.compile(parallel), torch.randn(16, 4096, device=device())
    return optimizing(compiled, lambda net: net(x).square().mean())


def small() -> Step:
    """Small kernels in CUDA graphs on each of two GPUs, which exchange a few bytes."""
    net = torch.compile(mlp(512, 100).to(torch.bfloat16), mode="reduce-overhead")
    x = torch.randn(512, 512, device=device(), dtype=torch.bfloat16)
    step, few = optimizing(net, lambda net: net(x).float().square().mean()), torch.ones(8).cuda()

    def together() -> torch.Tensor:
        distributed.all_reduce(few)
        return step()

    return together


def laggard() -> Step:
    """Rank 0 waits for rank 1, which computes four times as much."""
    net = nn.parallel.DistributedDataParallel(mlp(4096, 8))
    rows = 65536 if distributed.get_rank() else 8192
    compiled, x = torch.compile(net), torch.randn(rows, 4096, device=device())
    return optimizing(compiled, lambda net: net(x).square().mean())


def shared() -> Step:
    """With another process that uses the same GPU."""
    code = "import torch; x = torch.randn(8192, 8192, device='cuda')"
    code += "\nwhile True: x @ x; torch.cuda.synchronize()"
    OTHERS.append(subprocess.Popen([sys.executable, "-c", code]))
    time.sleep(8)
    return compute()


def idle_neighbour() -> Step:
    """With another process that holds memory on the GPU and does nothing."""
    code = "import torch, time; x = torch.randn(8192, 8192, device='cuda'); time.sleep(600)"
    OTHERS.append(subprocess.Popen([sys.executable, "-c", code]))
    time.sleep(8)
    return compute()


def gpt() -> Step:
    """GPT-2 124M as the benchmarks train it."""
    from benchmarks import gpt as benchmark

    return benchmark.Trainer("default").step


def mlp_small() -> Step:
    """A small MLP for pictures of digits, with a batch of 64."""
    net = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    ).to(device())
    x, y = torch.randn(64, 784, device=device()), torch.randint(10, (64,), device=device())
    compiled = torch.compile(net)
    return optimizing(compiled, lambda net: nn.functional.cross_entropy(net(x), y))


def resnet() -> Step:
    """ResNet-50, if torchvision is here."""
    from torchvision.models import resnet50

    net = torch.compile(resnet50().to(device()).to(memory_format=torch.channels_last))
    x = torch.randn(128, 3, 224, 224, device=device()).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (128,), device=device())

    def loss(net: nn.Module) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return nn.functional.cross_entropy(net(x), y)

    return optimizing(net, loss)


OTHERS: list[subprocess.Popen[bytes]] = []
ACROSS = {"communication", "laggard", "small"}


def main() -> None:
    """Train, and write the truth."""
    kind, file, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    torch.set_float32_matmul_precision("high")
    if kind in ACROSS:
        torch.cuda.set_device(device())
        distributed.init_process_group("nccl", device_id=device())
    step = globals()[kind]()
    for _ in range(WARM_STEPS):
        step()
    synchronize()
    truth: dict[str, Any] = {"kind": kind, "began": time.time()}
    until = time.perf_counter() + seconds
    began, steps = time.perf_counter(), 0
    while not _over(until):
        step()
        steps += 1
        if steps % 10 == 0:
            synchronize()  # as a loop that prints its loss
    synchronize()
    truth["step"] = (time.perf_counter() - began) / steps
    truth["ended"] = time.time()
    truth["kernels"] = {
        name: spent / PROFILED_STEPS for name, spent in kernels(step, PROFILED_STEPS).items()
    }
    truth["busy"] = truth["kernels"]["any"] / truth["step"]
    rank = os.environ.get("RANK", "0")
    file.with_suffix(f".{rank}.json").write_text(json.dumps(truth))
    for other in OTHERS:
        other.kill()
    if kind in ACROSS:
        distributed.destroy_process_group()


def _over(until: float) -> bool:
    """All ranks stop at the same step."""
    if not distributed.is_initialized():
        return time.perf_counter() >= until
    over = torch.tensor(float(time.perf_counter() >= until), device=device())
    distributed.all_reduce(over)
    return bool(over)


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if device().type == "cuda":
        torch.cuda.synchronize()


def kernels(step: Step, steps: int) -> dict[str, float]:
    """Seconds in which any kernel ran, and those of each kind, by the profiler."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        for _ in range(steps):
            step()
        synchronize()
    spans = [
        (event.name, event.time_range.start, event.time_range.end)
        for event in profiled.events()
        if event.device_type == DeviceType.CUDA and "Memcpy" not in event.name
    ]
    found = {"any": covered((begin, end) for _, begin, end in spans)}
    for kind, parts in KINDS_OF_KERNELS.items():
        found[kind] = covered(
            (begin, end) for name, begin, end in spans if any(part in name for part in parts)
        )
    return {kind: us / 1e6 for kind, us in found.items()}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of ``spans``."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    main()
