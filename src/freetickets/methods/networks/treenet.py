"""A network whose first stages are shared and whose last stages each member has for itself."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ...errors import FreeTicketsError
from ..members import MemberNetwork, redrawn, summed_over_members
from .stages import Stages


class TreeNetwork(MemberNetwork):
    """A trunk that all members share, and a branch for each.

    Args:
        network: It becomes the trunk and the first branch; the others start from other values.
        members: How many branches.
        shared: How many of its stages are the trunk; None for as many as `own` leaves.
        own: The share of the stages that each branch has for itself; two at least.
        alone: Whether each branch learns as if it were alone, and the trunk from their mean; if
            not, all learn from the mean of the branches' losses.
    """

    def __init__(
        self,
        network: nn.Module,
        members: int,
        shared: int | None,
        own: float = 1 / 3,
        alone: bool = True,
    ) -> None:
        super().__init__()
        self.members = members
        self._alone = alone
        self.trunk, branch = _split(network, shared, own)
        others = [_fresh_copy(branch) for _ in range(members - 1)]
        self.branches = nn.ModuleList([branch, *others])

    def member_logits(self, x: Tensor) -> Tensor:
        """Goes through the trunk once, and through all branches."""
        trunk = self.trunk(x)
        if self._alone and self.training and trunk.requires_grad:
            # Each branch learns as if it were alone, and the trunk from their mean: the sum of M
            # gradients would be a rate M times as high.
            trunk.register_hook(lambda gradient: gradient / self.members)
        # Each has a copy of its own, as its first layer may work in place.
        return torch.stack([branch(trunk.clone()) for branch in self.branches])

    def training_pairs(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Trains each branch on the whole batch."""
        outputs = self.member_logits(x)
        targets = labels.expand(self.members, *labels.shape)
        if not self._alone:
            return outputs.flatten(0, 1), targets.flatten(0, 1)
        return summed_over_members(outputs, targets)


def _split(network: nn.Module, shared: int | None, own: float) -> tuple[nn.Module, nn.Module]:
    if shared == 0:  # any network will do, also one that can't be traced
        return nn.Identity(), network
    stages, name = Stages(network), type(network).__name__
    most = len(stages) - 1
    if most == 0:
        raise FreeTicketsError(
            f"{name} can't be cut in stages: somewhere between two layers with weights, "
            "one tensor must be all that flows on"
        )
    if shared is None:
        # TreeNet's paper does not say where it splits; a third comes nearest to its costs.
        shared = max(1, len(stages) - max(2, int(len(stages) * own + 1e-9)))
    if shared > most:
        raise FreeTicketsError(
            f"{name} has {len(stages)} stages, of which 0 to {most} can be shared, not {shared}"
        )
    return stages.split(shared)


def _fresh_copy(branch: nn.Module) -> nn.Module:
    branch = copy.deepcopy(branch)
    with torch.no_grad():
        for parameter in branch.parameters():
            if parameter.requires_grad:  # what is frozen was not drawn
                parameter.copy_(redrawn(parameter))
    return branch
