"""A small Llama of the transformers library, its layers compiled one by one."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from scenarios._gpu import finish, mark
from transformers import LlamaConfig, LlamaForCausalLM

EXPECT = {"states": "compiling warming warm", "cold": True}

sizes = {"hidden_size": 512, "intermediate_size": 1408, "vocab_size": 8192}
net = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=8, num_attention_heads=8)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
compiled = torch.compile(net)
tokens = torch.randint(8192, (4, 512)).cuda()
for _ in range(8):
    loss = compiled(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
