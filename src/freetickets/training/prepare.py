"""Shows a network some of its training samples before the first step, if it asks for them."""

from __future__ import annotations

import math

import torch
from torch import nn

from ..data.batches import Batches
from ..models.prepare import preparable_modules, prepare

_SAMPLES = 5_000
# Numbers in all samples together, 67 MB: fewer images if they are large.
_NUMBERS = 2**24


def prepare_on(network: nn.Module, batches: Batches) -> None:
    """Prepares a network on the samples of its training batches.

    They are the same for all seeds and ranks: spread evenly over the training data, which may be
    sorted by class, in their order, and not augmented.
    """
    if not preparable_modules(network):
        return
    split = batches.split
    count = min(len(split), _SAMPLES, max(1, _NUMBERS // math.prod(split.shape)))
    plain = batches.whole()
    plain.split = split.subset(torch.arange(count) * len(split) // count)
    plain.augmentation, plain.shuffle = "none", False
    prepare(network, torch.cat([inputs for inputs, _ in plain.epoch(0)]))
