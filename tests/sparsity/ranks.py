"""What each rank of `test_trainers.py` does: a plain loop around DistributedDataParallel.

`torchrun ranks.py FOLDER BACKEND`: each rank leaves its weights and its topology in FOLDER.
"""

import os
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from freetickets.sparsity import Exploration, Sparsifier


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 10))


def batch(step):
    return torch.randn(16, 10, generator=torch.Generator().manual_seed(step))


def loss_of(model, inputs):
    return nn.functional.mse_loss(model(inputs), inputs.flip(1))


def train(rank, world, backend):
    """Trains on this rank's part of each batch."""
    model = network()
    wrapped = DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    schedule = Exploration(interval=4)
    sparsifier = Sparsifier(wrapped, optimizer, 0.8, exploration=schedule, backend=backend)
    for step in range(14):
        optimizer.zero_grad()
        loss_of(wrapped, batch(step)[rank::world]).backward()
        optimizer.step()
        sparsifier.step()
    return model, sparsifier


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    model, sparsifier = train(rank, distributed.get_world_size(), sys.argv[2])
    state = {"model": model.state_dict(), "topology": sparsifier.topology}
    torch.save(state, Path(sys.argv[1]) / f"{rank}.pt")
    distributed.barrier()  # the other may still be talking to this one
    distributed.destroy_process_group()
    os._exit(0)  # on a busy machine PyTorch's threads may abort a process that takes itself apart
