"""DataLoader workers that are forked and spawned, with random augmentation."""
# fresh
# steps: 8

import random

import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.randn(4) + random.random() + index


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Linear(4, 1)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for how in ("fork", "spawn"):
        loader = DataLoader(
            Noisy(), batch_size=2, shuffle=True, num_workers=1, multiprocessing_context=how
        )
        for batch in loader:
            loss = compiled(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(how, loss.item())
