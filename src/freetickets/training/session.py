"""The live side of one run: a network, its optimizer and its sparsifier, set up on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn

from ..errors import FreeTicketsError
from ..methods.plan import Run, SparseOptions
from ..methods.timeline import Timeline
from ..seeds import derive
from ..sparsity.sparsifier import Sparsifier
from ..sparsity.topology import Topology
from .optimizer import OptimizerOptions, make_optimizer


class Session:
    """Trains one network step by step along its timeline.

    Args:
        run: What to train.
        timeline: The run in steps.
        network: A freshly initialised network.
        fabric: The device, the precision and the processes.
        optimizer: How weights are updated.
        sparse: How the network is made sparse, if the plan asks for it.
        label_smoothing: Of the cross-entropy.
        backend: How sparse layers are computed: see `Sparsifier`.
    """

    def __init__(
        self,
        run: Run,
        timeline: Timeline,
        network: nn.Module,
        fabric: Fabric,
        optimizer: OptimizerOptions,
        sparse: SparseOptions,
        label_smoothing: float,
        backend: str,
    ) -> None:
        self.run = run
        self.timeline = timeline
        self.network = network
        self._fabric = fabric
        self._label_smoothing = label_smoothing
        network.to(fabric.device)
        raw_optimizer = make_optimizer(network, optimizer)
        self._raw_optimizer = raw_optimizer
        sparsity = run.phases[0].sparsity
        self.sparsifier = (
            Sparsifier(
                network,
                raw_optimizer,
                sparsity,
                distribution=sparse.distribution,
                exploration=timeline.exploration_rate,
                prune=sparse.prune,
                grow=sparse.grow,
                regrown_value=cast(Any, sparse.regrown_value),
                exclude=sparse.exclude,
                backend=cast(Any, backend),
                seed=derive(run.seed, "topology"),
            )
            if sparsity > 0
            else None
        )
        # After the sparsifier, which may replace layers: a wrapper must see the new ones.
        self._model, self._optimizer = fabric.setup(network, raw_optimizer)

    def step(self, step: int, inputs: Tensor, labels: Tensor, *, keep_gradients: bool) -> Tensor:
        """Takes one training step, and returns its loss and its number of correct answers.

        Args:
            step: Its number in the run, from 1.
            inputs: A batch.
            labels: Its labels.
            keep_gradients: Whether an escape follows, which needs the dense gradients.
        """
        for group in self._raw_optimizer.param_groups:
            group["lr"] = self.timeline.lr(step)
        # Dropout and the like draw by the step's number, so a resumed run draws the same.
        torch.manual_seed(derive(self.run.seed, "step", step))
        if self.sparsifier is not None and keep_gradients:
            self.sparsifier.keep_gradients()
        self.network.train()
        logits = self._model(inputs)
        loss = _cross_entropy(logits, labels, label_smoothing=self._label_smoothing)
        self._optimizer.zero_grad()
        self._fabric.backward(loss)
        self._optimizer.step()
        if self.sparsifier is not None:
            self.sparsifier.step()
        correct = (logits.detach().argmax(-1) == labels).sum()
        return torch.stack([loss.detach().double() * len(labels), correct.double()])

    def escape(self, rate: float) -> None:
        """Explores once at a large rate; a dense network has no topology to leave."""
        if self.sparsifier is not None:
            self.sparsifier.explore(rate)

    @torch.no_grad()
    def score(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Returns the summed loss and the number of correct answers of a batch."""
        self.network.eval()
        logits = self._model(inputs)
        loss = _cross_entropy(logits, labels, reduction="sum")
        return torch.stack([loss.double(), (logits.argmax(-1) == labels).sum().double()])

    @property
    def finite(self) -> bool:
        """Whether the network is made of numbers: a last step that explodes shows in no loss."""
        return all(bool(tensor.isfinite().all()) for tensor in self.network.state_dict().values())

    @property
    def topology(self) -> Topology:
        """The masks of the sparse layers."""
        return self.sparsifier.topology if self.sparsifier is not None else {}

    def state_dict(self) -> dict[str, Any]:
        """Returns all that a resumed run needs."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self._raw_optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict() if self.sparsifier else None,
            "precision": self._fabric.strategy.precision.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict`."""
        try:
            self.network.load_state_dict(state["network"])
            self._raw_optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise FreeTicketsError(f"the checkpoint is of another network: {reason}") from error
        if self.sparsifier is not None:
            self.sparsifier.load_state_dict(state["sparsifier"])
        self._fabric.strategy.precision.load_state_dict(state["precision"])


def _cross_entropy(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
    try:
        return F.cross_entropy(logits, labels, **options)
    except (IndexError, RuntimeError, ValueError) as error:
        raise FreeTicketsError(
            f"the network's outputs have the shape {tuple(logits.shape)}, for {len(labels)} labels "
            f"up to {int(labels.max())}: it must return one score for each sample and class"
        ) from error
