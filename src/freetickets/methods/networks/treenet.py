"""A network whose first stages are shared and whose last stages each member has for itself."""

import copy
import operator
from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, fx, nn

from ...errors import FreeTicketsError, is_out_of_memory
from ...models.prepare import Preparable
from ..members import MemberNetwork, evaluating, redrawn


class TreeNetwork(MemberNetwork):
    """A trunk that all members share, and a branch for each.

    The network becomes the trunk, of `shared` stages, and the first branch; the others start from
    other values. If `shared` is None, each branch has the share `own` of the stages for itself, two
    at least. Each branch learns as if it were `alone`, and the trunk from their mean, which the sum
    of M gradients would not be; if not, all learn from the mean of their losses.
    """

    def __init__(
        self, network: nn.Module, members: int, shared: int | None, own: float, alone: bool
    ) -> None:
        super().__init__()
        self.members, self._alone = members, alone
        self.trunk, branch = _split(network, shared, own)
        self.branches = nn.ModuleList([branch, *(_fresh_copy(branch) for _ in range(1, members))])

    def member_logits(self, x: Tensor) -> Tensor:
        """Goes through the trunk once, and through all branches."""
        trunk = self.trunk(x)
        if self._alone and self.training and trunk.requires_grad:
            trunk.register_hook(lambda gradient: gradient / self.members)
        # Each has a copy of its own, as its first layer may work in place.
        return torch.stack([branch(trunk.clone()) for branch in self.branches])

    def training_pairs(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Trains each branch on the whole batch."""
        logits = self.member_logits(x)
        if self._alone and logits.requires_grad:
            # The mean over all pairs would make each learn at an M-th of its own rate: so the
            # gradients, not the values, are multiplied by M.
            logits.register_hook(lambda gradient: gradient * self.members)  # type: ignore[no-untyped-call]
        return logits.flatten(0, 1), labels.expand(self.members, *labels.shape).flatten(0, 1)


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


class Stages:
    """The parts of a network that run one after the other.

    A stage ends where all that comes later depends on one value only, and the next one begins with
    weights. So a residual block is a stage, whatever its code looks like.
    """

    def __init__(self, network: nn.Module) -> None:
        # It is called with one input: so its hooks and its other arguments' defaults count too.
        self._root = nn.Sequential(OrderedDict(network=network))
        # The steps of the flow are what depends on the input; the others are constants.
        self._steps: list[fx.Node] = []
        used: dict[fx.Node, set[nn.Parameter]] = {}  # with what constants are made of
        for node in _trace(self._root).nodes:
            used[node], inputs = set(), set(node.all_input_nodes)
            if node.op == "call_module":
                used[node].update(self._root.get_submodule(str(node.target)).parameters())
            elif node.op == "get_attr":
                value = operator.attrgetter(str(node.target))(self._root)
                used[node].update([value] if isinstance(value, nn.Parameter) else [])
            used[node].update(*(used[each] for each in inputs.difference(self._steps)))
            if node.op == "placeholder" or not inputs.isdisjoint(self._steps):
                self._steps.append(node)
        self._cuts = self._find_cuts([used[step] for step in self._steps])

    def __len__(self) -> int:
        return len(self._cuts) + 1

    def split(self, first: int) -> tuple[nn.Module, nn.Module]:
        """Returns the first stages as a network, and the others."""
        cut, steps = self._cuts[first - 1], self._steps
        (outputs,) = steps[-1].all_input_nodes
        before = self._part(steps[: cut + 1], steps[cut])
        return before, self._part(steps[cut:-1], outputs)

    def _find_cuts(self, parameters: list[set[nn.Parameter]]) -> list[int]:
        # The last step of each stage but the last.
        number = {node: i for i, node in enumerate(self._steps)}

        def used(first: int, end: int | None) -> set[nn.Parameter]:
            return set().union(*parameters[first:end])

        def has_weights(first: int, end: int) -> bool:
            return any(parameter.ndim > 1 for parameter in used(first, end))

        places, needed = [], 0
        for i, node in enumerate(self._steps[:-1]):
            alone = needed <= i  # no earlier value is used after this step
            needed = max([needed, *(number[user] for user in node.users)])
            # A value that is taken apart may be several, as a recurrent layer's is.
            whole = all(user.target is not operator.getitem for user in node.users)
            if alone and whole and used(0, i + 1).isdisjoint(used(i + 1, None)):
                places.append(i)
        # Of all places between two weights the last counts: a norm belongs to what it follows.
        return [
            place
            for place, following in pairwise([*places, len(parameters)])
            if has_weights(0, place + 1) and has_weights(place + 1, following + 1)
        ]

    def _part(self, steps: list[fx.Node], end: fx.Node) -> nn.Module:
        # What leads from the value of the first of these steps to that of `end`.
        graph = fx.Graph()
        copies = {steps[0]: graph.placeholder("x")}

        def copied(node: fx.Node) -> fx.Node:
            if node not in copies:  # constants come where they are first asked for
                copies[node] = graph.node_copy(node, copied)
            return copies[node]

        for step in steps:
            copied(step)
        graph.output(copied(end))
        return fx.GraphModule(self._root, graph)


class _Tracer(fx.Tracer):
    """Opens what is made of other modules, but no layer: its code may ask if it is training.

    Nor what looks at training data: it has a method for that.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        kinds = set(type(m).__mro__) - {nn.Module, nn.Sequential}
        is_torch = any(kind.__module__.startswith("torch.nn.") for kind in kinds)
        return is_torch or isinstance(m, Preparable) or not any(m.children())


def _trace(root: nn.Sequential) -> fx.Graph:
    name = type(root[0]).__name__
    try:
        graph = _Tracer().trace(root)
        with evaluating(root):
            in_evaluation = str(_Tracer().trace(root))
    except Exception as error:  # tracing runs the network's own code, which may do anything
        if is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise FreeTicketsError(f"TreeNet can't find the stages of {name}: {reason}") from error
    if str(graph) != in_evaluation:
        raise FreeTicketsError(
            f"TreeNet can't cut {name}, whose forward depends on self.training: use modules such "
            "as nn.Dropout instead"
        )
    return graph
