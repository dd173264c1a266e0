"""An ensemble: the members of a method, ready to predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as bind
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .data import Batches, LazySplit, Split
from .errors import FreeTicketsError
from .metrics import ensemble_log_probs
from .models import create_model
from .ticket import Ticket, ticket_path

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """How unsure an ensemble is of each sample, in nats.

    Attributes:
        total: Entropy of the mean prediction.
        aleatoric: Mean entropy of the members: what more members would not mend.
        epistemic: Their difference, the mutual information: how much the members disagree.
    """

    total: Array
    aleatoric: Array
    epistemic: Array

    @classmethod
    def of(cls, log_probs: npt.ArrayLike) -> Uncertainty:
        """Computes it from member log-probabilities (M, N, C).

        Example:
            >>> sure_but_opposed = np.log([[[0.999, 0.001]], [[0.001, 0.999]]])
            >>> Uncertainty.of(sure_but_opposed).epistemic.round(2).tolist()
            [0.69]
        """
        logs = np.asarray(log_probs, dtype=np.float64)
        total = _entropy(ensemble_log_probs(logs))
        aleatoric = _entropy(logs).mean(axis=0)
        return cls(total, aleatoric, np.maximum(total - aleatoric, 0.0))


class Ensemble:
    """The members of a method, in one object.

    Inputs are arrays or tensors: uint8 images (N, C, H, W) are normalised as they were in training,
    floats go to the networks as they are. Outputs are NumPy arrays in float64.

    Args:
        tickets: The members.
        build: Returns the network that a ticket's weights fit; None for a model that FreeTickets
            knows by name.
        device: Where to predict.
    """

    def __init__(
        self,
        tickets: Sequence[Ticket],
        build: Callable[[], nn.Module] | None = None,
        device: str = "cpu",
    ) -> None:
        if not tickets:
            raise FreeTicketsError("an ensemble needs at least one ticket")
        self.tickets = list(tickets)
        self._device = _find_device(device)
        self._members = [_member(ticket, build).to(self._device).eval() for ticket in tickets]
        if len(set(self._members)) < len(tickets):
            raise FreeTicketsError("the factory must return a new network each time it is called")

    def __len__(self) -> int:
        return len(self.tickets)

    def compile(self, batch_size: int = 256) -> Ensemble:
        """Returns the same ensemble, made to predict fast on the CPU.

        The zeros of sparse members are skipped, BatchNorm is folded into the convolutions, ReLU and
        additions are fused, and each layer runs sparse or dense, whichever is faster here. On other
        devices, and where the kernels are not built, the ensemble stays as it is.

        Args:
            batch_size: The most samples that will be predicted at a time: up to 4 are computed in
                another way than more. Any number works.
        """
        if self._device.type != "cpu":
            return self
        from .kernels.inference import compile_network

        compiled = copy.copy(self)
        compiled._members = [
            compile_network(member, ticket.topology, batch_size)
            for member, ticket in zip(self._members, self.tickets, strict=True)
        ]
        return compiled

    @property
    def info(self) -> Mapping[str, Any]:
        """What the tickets say of their model, data and method."""
        return self.tickets[0].info

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.info["classes"])

    @torch.no_grad()
    def member_log_proba(self, x: Any, batch_size: int = 256) -> Array:
        """The log-probabilities of each member for each sample and class, (M, N, C)."""
        outputs: list[list[torch.Tensor]] = [[] for _ in self._members]
        for inputs in self._batches(x, batch_size):
            for member, output in zip(self._members, outputs, strict=True):
                output.append(member(inputs).double().log_softmax(-1).cpu())
        return np.stack([torch.cat(output).numpy() for output in outputs])

    def member_proba(self, x: Any, batch_size: int = 256) -> Array:
        """The probabilities of each member, (M, N, C)."""
        return np.exp(self.member_log_proba(x, batch_size))

    def predict_proba(self, x: Any, batch_size: int = 256) -> Array:
        """The ensemble's probabilities, (N, C): by default the mean of its members'."""
        log_probs = self.member_log_proba(x, batch_size)
        return np.exp(ensemble_log_probs(log_probs, self.info["combine"]))

    def predict(self, x: Any, batch_size: int = 256) -> npt.NDArray[np.int64]:
        """The most probable class of each sample, (N,)."""
        return self.predict_proba(x, batch_size).argmax(axis=-1)

    def uncertainty(self, x: Any, batch_size: int = 256) -> Uncertainty:
        """How unsure the ensemble is of each sample, and why."""
        return Uncertainty.of(self.member_log_proba(x, batch_size))

    def save(self, folder: str | Path) -> None:
        """Writes the tickets into a folder that `load` reads, in place of any that were there."""
        folder = Path(folder)
        for number, ticket in enumerate(self.tickets, start=1):
            info = {**ticket.info, "number": number, "tickets": len(self)}
            replace(ticket, info=info).save(ticket_path(folder, number))
        for file in _ticket_files(folder)[len(self) :]:
            file.unlink()

    def _batches(self, x: Any, batch_size: int) -> Iterator[torch.Tensor]:
        expected = tuple(self.info["input_shape"])
        split = x if isinstance(x, (Split, LazySplit)) else _unlabelled(x, expected)
        shape = split.shape if isinstance(split, LazySplit) else tuple(split.inputs.shape[1:])
        if shape != expected:
            raise FreeTicketsError(
                f"the ensemble takes inputs of shape (N, {', '.join(map(str, expected))}), not "
                f"(N, {', '.join(map(str, shape))})"
            )
        mean, std = self.info["mean"], self.info["std"]
        if isinstance(split, Split) and split.inputs.dtype != torch.uint8:
            mean, std = (), ()
        elif not mean:
            raise FreeTicketsError(
                "the ensemble was trained on floats: give floats, prepared in the same way"
            )
        for batch, _ in Batches(split, batch_size, mean=mean, std=std, shuffle=False).epoch(0):
            yield batch.to(self._device)


def load(
    folder: str | Path,
    model: Callable[[], nn.Module] | str | None = None,
    *,
    device: str = "cpu",
    partial: bool = False,
) -> Ensemble:
    """Loads the ensemble of a run folder, or of anything that `Ensemble.save` wrote.

    Args:
        folder: The folder that holds `tickets/`.
        model: The factory of the network, if it is not one of FreeTickets' own: nothing that is
            loaded from a folder may choose code to run.
        device: Where to predict.
        partial: Accept a run that has not collected all its tickets yet.
    """
    folder = Path(folder)
    files = _ticket_files(folder)
    if not files:
        raise FreeTicketsError(f"no tickets in {folder}: is it the folder of a run?")
    tickets = [Ticket.load(file) for file in files]
    info = tickets[0].info
    if len(tickets) < info.get("tickets", 0) and not partial:
        raise FreeTicketsError(
            f"{folder} has {len(tickets)} of {info['tickets']} tickets: the run is still training, "
            "or was stopped; run its train command again to finish it"
        )
    if isinstance(model, str):
        name = model
        return Ensemble(tickets, lambda: _create({**info, "model": name}), device)
    return Ensemble(tickets, model, device)


def _ticket_files(folder: Path) -> list[Path]:
    return sorted((folder / "tickets").glob("[0-9]*.safetensors"))


def _find_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # the latter: torch is built without it
        reason = str(error).partition("\n")[0]
        raise FreeTicketsError(f"can't use --device {name}: {reason}") from error


def _unlabelled(x: Any, shape: tuple[int, ...]) -> Split:
    inputs = torch.as_tensor(x)
    if inputs.dtype != torch.uint8:
        inputs = inputs.float()
    if inputs.ndim == 2 and (*inputs.shape[1:], 1, 1) == shape:  # features of an .npz data set
        inputs = inputs.reshape(-1, *shape)
    return Split(inputs, torch.zeros(len(inputs), dtype=torch.int64))


def _member(ticket: Ticket, build: Callable[[], nn.Module] | None) -> nn.Module:
    if build is None:
        name = ticket.info.get("model")
        if not name or ":" in name:
            raise FreeTicketsError(
                f"this ensemble's network is your own ({name or 'a Python object'}): pass the same "
                "factory as model= (or --model module:function)"
            )
        build = bind(_create, ticket.info)
    with torch.random.fork_rng(devices=[]):  # the new network's values are replaced at once
        model = build()
    try:
        model.load_state_dict(ticket.state)
    except RuntimeError as error:
        reason = str(error).replace("\n", " ").replace("\t", "")[:200]
        raise FreeTicketsError(f"the network does not fit the ticket: {reason}") from error
    return model


def _create(info: Mapping[str, Any]) -> nn.Module:
    shape = tuple(info["input_shape"])
    return create_model(info["model"], shape, len(info["classes"]), **info["model_options"])


def _entropy(log_probs: Array) -> Array:
    probs = np.exp(log_probs)
    # A class that is ruled out adds nothing, where 0 x -inf would be NaN.
    return -(probs * np.where(probs > 0, log_probs, 0.0)).sum(axis=-1)
