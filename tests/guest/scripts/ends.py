"""Exit handlers, open threads, and sys.exit with a text."""
# core
# exit: 1
# steps: 1

import atexit
import sys
import threading

import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
(weight * 2).sum().backward()
atexit.register(print, "first handler")
atexit.register(lambda: optimizer.zero_grad())
threading.Thread(target=lambda: threading.Event().wait(0.2) or print("thread")).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
optimizer.step()
sys.excepthook = lambda *error: print("hook", error)
sys.exit("an own text")
