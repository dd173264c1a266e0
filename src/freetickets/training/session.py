"""The live side of one run: a network, its optimizer and its sparsifier; and what an event sees."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..config import Config
from ..data.batches import Batches
from ..data.samples import looked_up
from ..errors import FreeTicketsError
from ..kernels.choices import Choices
from ..kernels.layout import GroupedLayout
from ..kernels.library import available
from ..methods.members import MemberNetwork
from ..methods.plan import Plan, Run
from ..methods.timeline import Timeline
from ..models.prepare import preparable_modules, prepare
from ..seeds import derive
from ..sparsity.criteria import initial_topology
from ..sparsity.network import Backend
from ..sparsity.sparsifier import Sparsifier
from ..sparsity.topology import Topology
from ..tasks import Task
from ..ticket import Ticket
from .optimizer import make_optimizer
from .parallel import Compute, release

if TYPE_CHECKING:
    from .trainer import Trainer

# What a network is prepared on: so many samples, or fewer if they are large: 67 MB of numbers.
_SAMPLES, _NUMBERS = 5_000, 2**24


class _OwnSparsifier(Sparsifier):
    _owns_network = True  # nobody else has it: its layers may be replaced


class Session:
    """Trains one network, freshly initialised, step by step along its timeline.

    It starts with `topology`, if not with a random one, and keeps the ways of layers that the run's
    folder has (`choices`).
    """

    def __init__(
        self, plan: Plan, run: Run, timeline: Timeline, network: nn.Module, compute: Compute,
        config: Config, task: Task, topology: Topology | None = None,
        choices: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.run, self.timeline, self.network = run, timeline, network
        self.sparsifier: Sparsifier | None = None
        self.outputs = 1  # of the network, which says it in its first step
        self._plan, self._compute, self._ranks = plan, compute, compute.ranks
        self._backend, self._task = config.backend, task
        self._layout: GroupedLayout | None = None
        self._prunes = any(phase.pruning is not None for phase in run.phases)
        network.to(compute.device)
        self._optimizer = make_optimizer(network, config)
        if topology is not None or run.phases[0].sparsity > 0 or self._prunes:
            self._sparsify(topology, choices or {})
        elif config.backend != "masked" and compute.device.type == "cpu" and available():
            kept = Choices()
            kept.load_state_dict(choices or {})
            self._layout = GroupedLayout(network, kept)  # dense layers have faster kernels too
        # After the sparsifier, which may replace layers: a wrapper must see the new ones.
        self._model = compute.wrap(network)

    def _sparsify(self, topology: Topology | None, choices: Mapping[str, Any]) -> None:
        sparse = self._plan.sparse
        # Layers whose counts change or that have a reserve can't be held compressed.
        changes = self._prunes or sparse.redistribute is not None or sparse.reserve > 0
        self.sparsifier = _OwnSparsifier(
            self.network, self._optimizer, first_sparsity(self.run), **sparse.arguments,
            topology=topology, exploration=self.timeline.exploration_rate,
            pruning=self.timeline.sparsity if self._prunes else None,
            backend=cast(Backend, "masked" if changes else self._backend),
            seed=derive(self.run.seed, "topology"),
        )  # fmt: skip
        if self.sparsifier.choices is not None:
            self.sparsifier.choices.load_state_dict(choices)
        self._ranks.check_same(self.topology)

    def step(
        self, at: int, inputs: Tensor, labels: Tensor, *, keep_gradients: bool, factor: float = 1.0
    ) -> Tensor:
        """Takes the step `at`, counted from 1; returns its mean loss and score, times the factor.

        The factor makes this rank's mean a part of that over all ranks: see `Batches.factor`. An
        escape that follows needs the dense gradients (`keep_gradients`).
        """
        for group in self._optimizer.param_groups:
            group["lr"] = self.timeline.lr(at) * group.get("lr_factor", 1.0)
        # Dropout and the like draw by the step's number, so a resumed run draws the same.
        place = ("step", at) if self._ranks.first else ("step", at, self._ranks.rank)
        seed = derive(self.run.seed, *place)
        if self.device.type == "cpu":  # at a hundredth of the price of seeding all devices
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        if self.sparsifier is not None and keep_gradients:
            self.sparsifier.keep_gradients()
        self.network.train()
        with self._compute.autocast(), looked_up(inputs):
            if isinstance(self.network, MemberNetwork):
                outputs, labels = self._model(inputs, labels)
            else:
                outputs = self._model(inputs)
        outputs = self._compute.single(outputs)
        self.outputs = max(1, outputs.shape[-1])
        loss = self._task.batch_loss(outputs, labels) * factor
        self._compute.update(loss, self._optimizer)
        if self.sparsifier is not None and self.sparsifier.step():
            self._ranks.check_same(self.topology)
        score = self._task.sample_scores(outputs.detach(), labels).double().mean()
        return torch.stack([loss.detach().double(), score * factor])

    def escape(self, rate: float) -> None:
        """Explores once at a large rate; a dense network has no topology to leave."""
        if self.sparsifier is not None:
            self.sparsifier.explore(rate)
            self._ranks.check_same(self.topology)

    def prune(self, sparsity: float, step: int) -> None:
        """Makes a dense network sparse: the smallest of all its weights go."""
        exclude = self._plan.sparse.exclude
        topology = initial_topology(
            "magnitude", self.network, sparsity, (), distribution="global", exclude=exclude
        )
        release(self._model)
        choices = self.choices
        if self._layout is not None:
            self._layout.remove()  # else its layers could not be made sparse
            self._layout = None
        self._sparsify(topology, choices.state_dict() if choices is not None else {})
        self._model = self._compute.wrap(self.network)
        assert self.sparsifier is not None
        self.sparsifier.steps = step

    @torch.no_grad()
    def score(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Returns the summed loss and the summed score of a batch."""
        outputs = self._predict(inputs)
        if isinstance(self.network, MemberNetwork):
            outputs = torch.from_numpy(self._said(outputs)).to(outputs)
        loss = self._task.batch_loss(outputs, labels, training=False).double() * len(labels)
        return torch.stack([loss, self._task.sample_scores(outputs, labels).double().sum()])

    @torch.no_grad()
    def predictions(self, inputs: Tensor) -> npt.NDArray[np.float64]:
        """Returns what the network says of a batch now, in evaluation mode, (N, ...)."""
        return self._said(self._predict(inputs.to(self.device)))

    def _said(self, outputs: Tensor) -> npt.NDArray[np.float64]:
        """What outputs say; members in one network speak together."""
        said = self._task.predictions(outputs)
        joins = isinstance(self.network, MemberNetwork)
        return self._task.joined(said, self._plan.combine) if joins else said

    def _predict(self, inputs: Tensor) -> Tensor:
        # Past the data-parallel wrapper, which all ranks would have to call equally often.
        self.network.eval()
        with self._compute.autocast(), looked_up(inputs):
            return self._compute.single(self.network(inputs))

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self._compute.device

    @property
    def finite(self) -> bool:
        """Whether the network is made of numbers: a last step that explodes shows in no loss."""
        return all(bool(tensor.isfinite().all()) for tensor in self.network.state_dict().values())

    @property
    def choices(self) -> Choices | None:
        """The ways that layers take; None if PyTorch alone computes."""
        if self.sparsifier is not None:
            return self.sparsifier.choices
        return self._layout.choices if self._layout is not None else None

    @property
    def topology(self) -> Topology:
        """The masks of the sparse layers."""
        return self.sparsifier.topology if self.sparsifier is not None else {}

    def state_dict(self) -> dict[str, Any]:
        """Returns all that a resumed run needs."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict() if self.sparsifier else None,
            "precision": self._compute.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict`."""
        load_weights(self.network, state["network"])
        try:
            self._optimizer.load_state_dict(state["optimizer"])
        except ValueError as error:
            raise _other_network(error) from error
        if self.sparsifier is not None:
            self.sparsifier.load_state_dict(state["sparsifier"])
        self._compute.load_state_dict(state["precision"])


def first_sparsity(run: Run) -> float:
    """The sparsity that a run starts with."""
    first = run.phases[0]
    return first.sparsity if first.pruning is None else first.pruning.initial


def prepare_on(network: nn.Module, batches: Batches) -> None:
    """Prepares a network on samples of its training batches, the same for all seeds and ranks.

    They are spread evenly over the training data, which may be sorted by class; not augmented.
    """
    if not preparable_modules(network):
        return
    split = batches.split
    count = min(len(split), _SAMPLES, max(1, _NUMBERS // math.prod(split.shape)))
    plain = batches.whole()
    plain.split = split.subset(torch.arange(count) * len(split) // count)
    plain.augmentation, plain.shuffle = "none", False
    prepare(network, torch.cat([inputs for inputs, _ in plain.epoch(0)]))


def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Gives a network the weights of a checkpoint; raises if they are of another one."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise _other_network(error) from error


def _other_network(error: Exception) -> FreeTicketsError:
    reason = " ".join(str(error).split())[:200]
    return FreeTicketsError(f"the checkpoint belongs to another network: {reason}")


@dataclass(frozen=True)
class Stage:
    """A training at the end of a phase.

    All ranks of a data-parallel training meet the same stage, and must leave it the same.

    Attributes:
        session: The network, its optimizer and its sparsifier, at work.
        batches: The training batches of this rank; `batches.whole()` gives all ranks the same.
        generator: Random numbers of this event's own, the same in a resumed run.
    """

    session: Session
    batches: Batches
    generator: torch.Generator
    _trainer: "Trainer"
    _take: Callable[[Mapping[str, Tensor], Topology], Ticket]

    @property
    def network(self) -> nn.Module:
        """The network as it is now."""
        return self.session.network

    @property
    def sparsifier(self) -> Sparsifier | None:
        """What holds the network to its topology; None for a dense one."""
        return self.session.sparsifier

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.session.device

    def build(self, ticket: Ticket) -> nn.Module:
        """Makes another network, with the weights of a ticket, in PyTorch's own layers."""
        with torch.random.fork_rng(devices=[]):
            network = self._trainer.build()
        network.load_state_dict(ticket.state)
        return network.to(self.device)

    @property
    def step(self) -> int:
        """How many steps the run has taken."""
        return self._trainer.state.step

    def take(
        self, weights: Mapping[str, Tensor] | None = None, topology: Topology | None = None
    ) -> Ticket:
        """Makes a ticket of the network as it is now, or of other weights and another topology."""
        own = self.network.state_dict() if weights is None else weights
        return self._take(own, self.session.topology if topology is None else topology)

    def best(self) -> Ticket:
        """The phase's best network on validation data; the present one if none was scored."""
        best = self._trainer.state.best
        return self.take() if best is None else Ticket.unpack(best)

    def collect(self, ticket: Ticket) -> str:
        """Adds a ticket to the ensemble, and saves it; returns a line for people."""
        return self._trainer.collect(ticket)

    def remember(self, name: str, ticket: Ticket) -> None:
        """Puts a network on the shelf, which is in every checkpoint until the run ends."""
        self._trainer.state.shelf[name] = ticket.pack()

    def recall(self, name: str) -> Ticket | None:
        """Takes a network from the shelf; None if nothing has this name."""
        packed = self._trainer.state.shelf.get(name)
        return None if packed is None else Ticket.unpack(packed)
