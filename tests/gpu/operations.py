"""``python -m gpu.operations [MODEL...] [--mode MODE]`` from tests/: MFU against a formula.

Trains each model twice in a mode of ``torch.compile``, with cold caches and then with those of the
first. Prints operations of a step and MFU as ``/status`` has them over those of the formula, with
steps timed by CUDA events. Exit 1 where one is off by more than 3 %, or the counts differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.daemon import daemon

MODELS = ("gpt", "fp8", "llama", "resnet")
STEADY, STEPS, OFF = 40, 160, 0.03
PEAK = float(os.environ.get("PEAK", "989.4e12"))  # of an H100 and an H200, bfloat16; float8: twice
Forward = Callable[[], Any]
Operations = dict[str, float]  # of a step, by type


def gpt() -> tuple[Any, Forward, Operations]:
    """GPT-2 with 124M parameters; its head shares the embedding's weight."""
    import torch
    from benchmarks import gpt as benchmark

    model, size = benchmark.GPT().cuda(), benchmark.GPT2
    batch = torch.randint(size.vocabulary, (2, benchmark.BATCH, size.context), device="cuda")
    weights = sum(p.numel() for p in model.parameters()) - model.places.weight.numel()
    attention = 12 * size.layers * size.width * size.context
    operations = (6 * weights + attention) * batch[0].numel()
    return model, lambda net: net(*batch), {"bfloat16": operations}


def fp8() -> tuple[Any, Forward, Operations]:
    """The same GPT; the linear layers of its blocks multiply in FP8, forward and backward."""
    from benchmarks import gpt as benchmark

    from gpu.trainings import float8

    model, forward, operations = gpt()
    weights = sum(layer.weight.numel() for layer in float8.convert(model.blocks))
    eight = 6 * weights * benchmark.BATCH * benchmark.GPT2.context
    return model, forward, {"float8": eight, "bfloat16": operations["bfloat16"] - eight}


def llama() -> tuple[Any, Forward, Operations]:
    """A Llama of the transformers library: four query heads share one of keys and values."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    layers, width, length = 8, 1024, 2048
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=2816,
        vocab_size=16384,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).cuda()
    tokens = torch.randint(16384, (8, length), device="cuda")
    weights = sum(p.numel() for p in model.parameters()) - model.model.embed_tokens.weight.numel()
    attention = 12 * layers * width * length
    operations = {"bfloat16": (6 * weights + attention) * tokens.numel()}
    return model, lambda net: net(input_ids=tokens, labels=tokens).loss, operations


def resnet() -> tuple[Any, Forward, Operations]:
    """ResNet-50: 4.089 billion products a picture forward; no gradient of the pictures."""
    import torch
    from torchvision.models import resnet50

    model = resnet50().cuda().to(memory_format=torch.channels_last)
    pictures = torch.randn(128, 3, 224, 224, device="cuda")
    labels = torch.randint(1000, (128,), device="cuda")
    stem = 2 * 64 * 3 * 7 * 7 * 112 * 112
    operations = {"bfloat16": (3 * 2 * 4.089184e9 - stem) * len(labels)}
    pictures = pictures.to(memory_format=torch.channels_last)
    return model, lambda net: torch.nn.functional.cross_entropy(net(pictures), labels), operations


def train(name: str, mode: str, file: Path) -> None:
    """Train one model; ``file`` gets the formula's operations and the seconds of a step."""
    import torch

    import warmwatch.auto  # noqa: F401

    torch.set_float32_matmul_precision("high")
    model, forward, operations = globals()[name]()
    compiled = torch.compile(model, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    events = []
    for step in range(STEPS):
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(compiled)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
        if step % 10 == 0:
            loss.item()
    torch.cuda.synchronize()
    steps = [a.elapsed_time(b) / 1e3 for a, b in pairwise(events[STEADY:])]
    file.write_text(json.dumps({"operations": operations, "step": statistics.mean(steps)}))
    sys.stdin.readline()  # alive until the parent has read its figures


def measured(name: str, mode: str, place: Path, cache: Path) -> tuple[dict[str, Any], int]:
    """The ``worth`` of one training, with the truth; and how many graphs came from a cache."""
    place.mkdir()
    file, records = place / "truth", place / "records"
    records.mkdir()
    env = {**os.environ, "WARMWATCH_DIR": str(records), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "gpu.operations", "--train", name, mode, str(file)]
    with daemon(records) as url, (place / "output").open("w") as output:
        training = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stderr=output)
        while not file.exists() or not file.read_text():
            if training.poll() is not None:
                return {"error": (place / "output").read_text()[-900:]}, 0
            time.sleep(0.05)
        time.sleep(1)  # polls
        with urllib.request.urlopen(f"{url}/status") as reply:
            rank = json.load(reply)["runs"][0]["ranks"][0]
        training.communicate(b"\n")
    hits = rank["compile"].get("cache_hits") or 0
    return {**rank["worth"], **json.loads(file.read_text())}, hits


def main() -> int:
    """Run the models and print a line for each training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--mode", default="default")
    chosen = parser.parse_args()
    wrong = 0
    for name in chosen.models:
        counts = set()
        with tempfile.TemporaryDirectory() as place:
            for caches in ("cold", "warm"):
                found, hits = measured(name, chosen.mode, Path(place, caches), Path(place, "cache"))
                if "error" in found:
                    print(f"{name:<8} {chosen.mode} {caches} FAILED {found['error']}", flush=True)
                    return 1
                counts.add(count := found["flops_per_step"])
                total = sum(found["operations"].values())
                bf16 = total - found["operations"].get("float8", 0) / 2
                by_formula = bf16 / found["step"] / PEAK
                count, mfu = (count or 0) / total, (found["mfu_ratio"] or 0)
                wrong += abs(count - 1) > OFF or abs(mfu / by_formula - 1) > OFF
                print(
                    f"{name:<8} {chosen.mode} {caches}, {hits} cache hits: operations"
                    f" {found['flops_per_step']} of {total:.6g} ({count:.4f}), MFU"
                    f" {mfu:.4%} of {by_formula:.4%} ({mfu / by_formula:.4f}),"
                    f" step {1e3 * found['step']:.3f} ms, excluded {found['excluded']},"
                    f" types {found['dtypes']}",
                    flush=True,
                )
        wrong += len(counts) > 1
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        sys.exit(main())
