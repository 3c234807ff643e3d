"""A GPT of 124M parameters on random tokens."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from benchmarks import gpt
from scenarios._gpu import finish, mark

EXPECT = {"states": "compiling warming warm", "cold": True}

trainer = gpt.Trainer("default")
for _ in range(8):
    mark(trainer.step())
finish()
