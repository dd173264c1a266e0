"""What any module, a user's own too, takes from the training data before it is trained."""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Preparable(Protocol):
    """A module that looks at training data once, before the first step.

    It must keep what it finds in buffers or frozen parameters that are in its `state_dict`: then
    tickets and checkpoints have it, and a resumed run or a loaded ensemble needs no data. Each
    run of a method prepares networks of its own, always on the same inputs.
    """

    def prepare_on(self, inputs: Tensor) -> None:
        """Takes training samples (N, ...) as the network gets them, not augmented, on the CPU."""


def preparable_modules(network: nn.Module) -> list[nn.Module]:
    """Returns the modules of a network that look at training data first."""
    return [module for module in network.modules() if isinstance(module, Preparable)]


def prepare(network: nn.Module, inputs: Tensor) -> None:
    """Shows training samples to all modules of a fresh network that ask for it.

    Training does this by itself, `Method.fit` and `freetickets train`. For a loop of your own call
    it once, before the first step, with samples as the network gets them.
    """
    with torch.no_grad():
        for module in preparable_modules(network):
            cast(Preparable, module).prepare_on(inputs)
