"""A sitecustomize elsewhere, in an environment that lists it, and the modules it leaves."""
# fresh
# steps: 2

import os
import subprocess
import sys
import textwrap

import torch

os.makedirs("site", exist_ok=True)
with open("site/sitecustomize.py", "w") as file:
    file.write("import sys\nprint('the own sitecustomize', __name__, 'torch' in sys.modules)\n")
body = """
    import sys
    import sitecustomize
    print(sitecustomize.__file__.split("/")[-2:], sitecustomize.__spec__.name)
    import torch
    print(torch.ones(2).sum().item())
"""
paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.path.abspath("site")]))
done = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(body)],
    env={**os.environ, "PYTHONPATH": paths, "TORCH_LOGS": ""},
    capture_output=True,
    text=True,
    check=False,
)
print(done.stdout, done.stderr, done.returncode)
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    weight.sum().backward()
    optimizer.step()
    print(weight.sum().item())
