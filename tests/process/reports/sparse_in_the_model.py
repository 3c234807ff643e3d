"""A model makes a sparse matrix in each call: nothing is captured."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#180839"
EXPECT = {
    "names": ["parse"],
    "remedy": ["to_dense()"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}
rows, columns, values = torch.tensor([0, 2, 3, 4]), torch.tensor([0, 2, 1, 3]), torch.ones(4)
dense = torch.sparse_csr_tensor(rows, columns, values, (3, 4)).to_dense()


@torch.compile(backend="eager")
def loss_of(x):
    sparse = dense if CURED else torch.sparse_csr_tensor(rows, columns, values, (3, 4))
    return (sparse @ net(x)).relu()


steps(6, lambda _: loss_of(torch.ones(4, 4)))
