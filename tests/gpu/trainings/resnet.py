"""torchvision's ResNet-50 on random pictures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from scenarios._gpu import finish, mark
from torchvision.models import resnet50

EXPECT = {"states": "compiling warming warm", "cold": True}

net = resnet50().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
compiled = torch.compile(net)
pictures, labels = torch.randn(32, 3, 224, 224).cuda(), torch.randint(1000, (32,)).cuda()
for _ in range(8):
    loss = torch.nn.functional.cross_entropy(compiled(pictures), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
