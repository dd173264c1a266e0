"""The dense gradients that growth looks at, kept only around the explorations that need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from .weight import MaskedWeight

# The decay of the running mean of dense gradients that "momentum" growth looks at, as in SNFS.
_MOMENTUM_DECAY = 0.9


class GradientRecord:
    """Sums dense gradients over the window before an exploration, and their running mean.

    The gradients of a step are taken before it and committed after it, so that a step which the
    optimizer does not take (an overflow) leaves no trace.

    Args:
        needs: What the scores look at: "gradient", "momentum", both or nothing.
        window: The most steps that one sum holds.
    """

    def __init__(self, needs: Iterable[str], window: int) -> None:
        self._sums = "gradient" in needs
        self._averages = "momentum" in needs
        self._window = window
        self._count = 0
        self._open = False
        self._keep = False
        self._wanted = False
        self._taken: dict[str, Tensor] | None = None
        self._gradients: dict[str, Tensor] = {}
        self._momentum: dict[str, Tensor] = {}

    @property
    def missing(self) -> bool:
        """Whether a gradient is needed and no layer has one."""
        return (self._sums and not self._gradients) or (self._averages and not self._momentum)

    @property
    def taken(self) -> bool:
        """Whether the gradients of the coming step were taken already."""
        return self._taken is not None

    def keep(self) -> None:
        """Makes the gradients of the coming step wanted."""
        self._keep = True

    def needs(self, wanted: bool) -> bool:
        """Whether the coming step's gradients are needed; `wanted`: an exploration uses them."""
        return self._averages or (self._sums and (wanted or self._keep))

    def take(self, weights: Iterable[MaskedWeight], wanted: bool) -> None:
        """Copies the gradients of the coming step; `wanted`: an exploration will use them."""
        self._taken = {}
        if self.needs(wanted):
            gradients = {weight.name: weight.take_gradient() for weight in weights}
            self._taken = {name: grad for name, grad in gradients.items() if grad is not None}
        self._wanted = wanted or self._keep

    def drop(self) -> None:
        """Forgets what was taken: there was no step."""
        self._taken = None

    def commit(self) -> None:
        """Records what was taken: the step is done."""
        if not self._open or self._count == self._window:
            self._gradients, self._count = {}, 0
        self._open = self._wanted
        self._count += self._wanted
        for name, gradient in (self._taken or {}).items():
            if self._averages:
                mean = self._momentum.setdefault(name, torch.zeros_like(gradient))
                mean.mul_(_MOMENTUM_DECAY).add_(gradient, alpha=1 - _MOMENTUM_DECAY)
            if self._sums and self._wanted:
                total = self._gradients.get(name)
                self._gradients[name] = gradient if total is None else total + gradient
        self._taken, self._keep, self._wanted = None, False, False

    def close(self) -> None:
        """Ends the window: the next gradient starts a new one."""
        self._open = False

    def gradient(self, name: str) -> Tensor | None:
        """The mean gradient over the window; None if the layer had none."""
        total = self._gradients.get(name)
        return total / self._count if total is not None and self._count > 1 else total

    def momentum(self, name: str) -> Tensor | None:
        """The running mean of the gradients."""
        return self._momentum.get(name)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs."""
        return {
            "count": self._count,
            "open": self._open,
            "keep": self._keep,
            "gradients": {n: g.clone() for n, g in self._gradients.items()},
            "momentum": {n: m.clone() for n, m in self._momentum.items()},
        }

    def load_state_dict(
        self, state: Mapping[str, Any], devices: Mapping[str, torch.device]
    ) -> None:
        """Restores a `state_dict`."""
        self._taken, self._wanted = None, False
        self._count, self._open, self._keep = state["count"], state["open"], state["keep"]
        self._gradients = {n: g.to(devices[n], copy=True) for n, g in state["gradients"].items()}
        self._momentum = {n: m.to(devices[n], copy=True) for n, m in state["momentum"].items()}
