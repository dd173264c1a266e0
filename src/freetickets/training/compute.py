"""What a network is trained on: a device, in a precision, by one process or several."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..device import find_device
from .parallel import Ranks, ignore_unsaved_buffers, local_rank, meet, reduce_one_by_one


class Compute:
    """Forward passes, updates and data-parallel wrappers as device, precision and ranks ask.

    Args:
        device: Where the network lies.
        precision: Of what need not be in single precision; None for nothing.
        ranks: The processes that train it; None for this one alone.
    """

    def __init__(
        self,
        device: torch.device | None = None,
        precision: torch.dtype | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.device = device or torch.device("cpu")
        self.ranks = ranks or Ranks()
        self._precision = precision
        # Gradients of 16 bits would be zero where they are small. Scaling them costs a wait for the
        # device at each step, and bfloat16 reaches as far as single precision.
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=precision is torch.float16)

    def wrap(self, network: nn.Module) -> nn.Module:
        """Returns what to call in training: it averages gradients over the ranks, if several."""
        if self.ranks.world == 1:
            return network
        ignore_unsaved_buffers(network)
        on_cpu = self.device.type == "cpu"
        wrapper = DistributedDataParallel(network, device_ids=None if on_cpu else [self.device])
        if on_cpu:  # where a resumed run ends with the same bits
            reduce_one_by_one(wrapper)
        return wrapper

    def autocast(self) -> AbstractContextManager[Any]:
        """Within, a forward pass computes in the chosen precision where that is safe."""
        return torch.autocast(
            self.device.type, self._precision, enabled=self._precision is not None
        )

    def single(self, output: Tensor) -> Tensor:
        """Returns what a forward pass gave as it would be without another precision."""
        return output if self._precision is None else output.float()

    def update(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Takes a step along the gradients of a loss."""
        optimizer.zero_grad()
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict`."""
        if state:
            self._scaler.load_state_dict(dict(state))


def make_compute(device: str, amp: bool) -> Compute:
    """Chooses the device and the precision, and meets the other processes, if there are any.

    Args:
        device: Its name, as `find_device` takes it.
        amp: Whether to compute in 16 bits where that is safe.
    """
    on_gpus = distributed.is_torchelastic_launched() and torch.cuda.is_available()
    if on_gpus and device in ("auto", "cuda"):
        device = f"cuda:{local_rank()}"  # from the start: a first touch takes memory of a device
    found = find_device(device)
    if on_gpus and found.type == "cuda":
        torch.cuda.set_device(found)  # where NCCL keeps its own memory
    ranks = meet(found)
    sixteen = torch.float16 if found.type == "cuda" else torch.bfloat16
    return Compute(found, sixteen if amp else None, ranks)
