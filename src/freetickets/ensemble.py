"""An ensemble: the members of a method, ready to predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial as bind
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .calibration import Temperature, check_scope, fit_temperature
from .cascade import Cascade, EarlyAnswers, fit_cascade, in_turn
from .data import Batches
from .data.loading import unlabelled
from .data.samples import as_array, looked_up
from .device import find_device
from .errors import DamagedFileError, FreeTicketsError
from .kernels.inference import LazilyCompiled
from .methods import Method
from .methods.members import MemberNetwork
from .networks import create, network_of
from .reading import read_json
from .selection import check_size, select_members
from .storage import write_json
from .tasks import Task, stored_task, task_name
from .tasks.task import Classes
from .ticket import Ticket, ticket_path

Array = npt.NDArray[np.float64]

_CALIBRATION, _CASCADE = "calibration.json", "cascade.json"


class Ensemble:
    """The members of a method, in one object.

    Inputs are what training takes: arrays, tensors, data frames or a torch Dataset, whose labels
    are ignored. Images are normalised as in training; numbers go to the networks unchanged. An
    array is read piece by piece, so one on disk (`numpy.memmap`) may be larger than memory.
    Predictions are NumPy arrays in float64, in the form that its `task` defines, at the
    `temperature` that `calibrate` fitted, if any.

    Args:
        tickets: The members; a ticket of MIMO and the like holds several.
        build: Returns the network that a ticket's weights fit, before the method transformed it;
            None for a model that FreeTickets knows by name.
        device: Where to predict.
        method: The method that made the tickets, if FreeTickets does not know it by name.
        task: What the outputs are for; None for a task that FreeTickets knows by name.
        compile: Whether members may be compiled where that makes them faster: on the CPU, where
            the kernels are built. Answers are the same except for rounding. The first time that
            inputs of some shape come and are few, the plain network answers, so that a single
            prediction need not wait.
    """

    temperature: Temperature | None = None
    early: Cascade | None = None  # when `predict_in_turn` has asked enough members

    def __init__(
        self, tickets: Sequence[Ticket], build: Callable[[], nn.Module] | None = None,
        device: str = "cpu", *, task: Task | str | None = None, method: Method | None = None,
        compile: bool = True,  # noqa: A002 (the word that users know)
    ) -> None:  # fmt: skip
        if not tickets:
            raise FreeTicketsError("an ensemble needs at least one ticket")
        self.tickets = list(tickets)
        self.task = stored_task(self.info, task)
        self._device = find_device(device)
        made = [network_of(ticket, build, method).to(self._device).eval() for ticket in tickets]
        if len(set(made)) < len(tickets):
            raise FreeTicketsError("the factory must return a new network each time it is called")
        self._members = sum(net.members if isinstance(net, MemberNetwork) else 1 for net in made)
        self._networks = made
        self._predictors: list[Callable[[torch.Tensor], torch.Tensor]] = list(made)
        self.compiles = compile and self._device.type == "cpu"
        if self.compiles:
            self._predictors = self._compiled(at_once=False)

    def __len__(self) -> int:
        return self._members

    def __repr__(self) -> str:
        told = [f"{len(self)} member" + "s" * (len(self) != 1)]
        told += filter(None, map(self.info.get, ("method", "model", "dataset")))
        if self.tickets[0].topology:
            told.append(f"sparsity {self.info.get('sparsity', 0.0):.3g}")
        if self.temperature is not None:
            told.append(f"temperature by {self.temperature.scope}")
        return f"Ensemble({', '.join(told)})"

    def compile(self) -> Ensemble:
        """Returns the same ensemble with its members compiled at once, even for few samples.

        Zeros are skipped, BatchNorm is folded, ReLU and additions are fused, and each layer runs
        sparse or dense, whichever is faster here. A member is compiled when it first meets inputs
        of a new shape, and compared with the plain network on them; where the two differ, the plain
        one is used, and a warning says so. On other devices, and where the kernels are not built,
        the ensemble stays as it is.
        """
        if self._device.type != "cpu":
            return self
        compiled = copy.copy(self)
        compiled._predictors = self._compiled(at_once=True)
        return compiled

    def _compiled(self, at_once: bool) -> list[Callable[[torch.Tensor], torch.Tensor]]:
        return [
            # A dense network of several members may drop out, or change its mode, as it predicts.
            member
            if isinstance(member, MemberNetwork) and not ticket.topology
            else LazilyCompiled(member, at_once=at_once)
            for member, ticket in zip(self._networks, self.tickets, strict=True)
        ]

    def calibrate(
        self, x: Any, y: npt.ArrayLike, scope: str = "ensemble", batch_size: int = 256
    ) -> Ensemble:
        """Returns the same ensemble at the temperature that suits this data best.

        The data should not be used for training or testing. One temperature for the "ensemble"
        never changes the predicted class; one for each of the "members" changes what they predict.
        """
        check_scope(scope)
        logs, truth = self._held_out(x, y, batch_size, "a temperature is fitted to")
        combine = self.info["combine"]
        return self.with_temperature(fit_temperature(logs, truth, scope=scope, combine=combine))

    def with_temperature(self, temperature: Temperature | None) -> Ensemble:
        """Returns the same ensemble at a given temperature; None removes it."""
        if temperature is not None:
            temperature.check_members(len(self))
            if temperature.combine != self.info["combine"]:
                raise FreeTicketsError(
                    f"the temperature is for the mean of {temperature.combine}, but this ensemble "
                    f"predicts by that of {self.info['combine']}: fit it again"
                )
        scaled = copy.copy(self)
        scaled.temperature, scaled.early = temperature, None  # probabilities are others now
        return scaled

    def cascade(
        self, x: Any, y: npt.ArrayLike, score: str = "accuracy", allowed: float | None = None,
        batch_size: int = 256,
    ) -> Ensemble:  # fmt: skip
        """Returns the same ensemble with a cascade, which decides how many `predict_in_turn` asks.

        Members answer in turn until their joint answer is sure enough, or enough of them agree. How
        sure is enough is fitted on data that should not be used for training or testing, so that as
        few members are asked as the score ("accuracy" or "nll") allows. The score may be worse than
        that of all members by `allowed` (by default 0.002 of accuracy, or 0.01 of NLL): the mean
        loss over this data plus one standard error, paired by sample, stays within that. A new
        temperature or choice of members removes the cascade, so fit it last.
        """
        if len(self) > len(self.tickets):
            raise FreeTicketsError(
                f"the members of {self.info.get('method')} share one network, which answers for all"
                " of them at once: a cascade needs members with a network each"
            )
        self._need_classes("a cascade is fitted to")
        said = self.member_log_proba(x, batch_size)
        truth = self.task.targets(as_array(y, "y"), self.labels)
        how = {"combine": self.info["combine"], "temperature": self.temperature}
        return self.with_cascade(fit_cascade(said, truth, score=score, allowed=allowed, **how))

    def with_cascade(self, cascade: Cascade | None) -> Ensemble:
        """Returns the same ensemble with a given cascade; None removes it."""
        if cascade is not None:
            values = () if self.temperature is None else self.temperature.values
            mine = (len(self), len(self.tickets), self.info["combine"], values)
            its = (cascade.members, cascade.members, cascade.combine, cascade.temperatures)
            if mine != its:
                raise FreeTicketsError(
                    "the cascade was fitted to other members, another rule to combine them or "
                    "another temperature: fit it again"
                )
        changed = copy.copy(self)
        changed.early = cascade
        return changed

    def select(
        self, x: Any, y: npt.ArrayLike, size: int | None = None, batch_size: int = 256
    ) -> Ensemble:
        """Returns an ensemble of the members that work best together, in the order of their choice.

        They are chosen greedily by NLL on data that should not be used for training or testing: as
        many as asked for, or until no further member improves the ensemble. The temperature is not
        kept, as it was fitted to all members: calibrate the new ensemble.
        """
        if len(self) > len(self.tickets):
            raise FreeTicketsError(
                f"can't choose from the members of {self.info.get('method')}: they share one "
                "network; choose from an ensemble whose members have one each"
            )
        check_size(size, len(self))
        logs, truth = self._held_out(x, y, batch_size, "members are chosen by")
        chosen = select_members(logs, truth, size, combine=self.info["combine"])
        selected = self.with_temperature(None)
        selected._members = len(chosen)
        for name in ("tickets", "_networks", "_predictors"):
            setattr(selected, name, [getattr(self, name)[i] for i in chosen])
        return selected

    @property
    def info(self) -> Mapping[str, Any]:
        """What the tickets say about their model, data and method."""
        return self.tickets[0].info

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; empty if the task has none."""
        return tuple(self.info["classes"])

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The networks of the tickets, as trained: never compiled, so they have gradients."""
        return tuple(self._networks)

    def member_predictions(self, x: Any, batch_size: int = 256) -> Array:
        """What each member predicts for each sample, (M, N, ...); for classes, log-probabilities.

        The members' own temperatures, if any, are applied; that of the ensemble is not.
        """
        return np.concatenate(list(self._member_predictions(x, batch_size)), axis=1)

    def member_log_proba(self, x: Any, batch_size: int = 256) -> Array:
        """The log-probabilities of each member for each sample and class, (M, N, C)."""
        self._need_classes("probabilities are those of")
        return self.member_predictions(x, batch_size)

    def member_proba(self, x: Any, batch_size: int = 256) -> Array:
        """The probabilities of each member, (M, N, C)."""
        return np.exp(self.member_log_proba(x, batch_size))

    def predict_proba(self, x: Any, batch_size: int = 256) -> Array:
        """The ensemble's probabilities, (N, C): by default the mean of its members'."""
        self._need_classes("probabilities are those of")
        return np.exp(self._prediction(x, batch_size))

    def _prediction(self, x: Any, batch_size: int) -> Array:
        """What the members say together, (N, ...)."""
        return np.concatenate([*map(self.combine, self._member_predictions(x, batch_size))])

    @torch.no_grad()
    def _member_predictions(self, x: Any, batch_size: int) -> Iterator[Array]:
        """What `member_predictions` returns, batch after batch."""
        for inputs in self.batches(x, batch_size):
            with looked_up(inputs):
                outputs = [predict(inputs) for predict in self._predictors]
            for i, network in enumerate(self._networks):
                if not isinstance(network, MemberNetwork):
                    outputs[i] = outputs[i][None]
            found = self.task.predictions(torch.cat(outputs))
            yield found if self.temperature is None else self.temperature.scale_members(found)

    @torch.no_grad()
    def predict_in_turn(self, x: Any, batch_size: int = 256) -> EarlyAnswers:
        """Predicts by asking members in turn, until the `cascade` has heard enough.

        The probabilities are those of the members that were asked, combined as all of them would
        be, at the same temperature. The uncertainty is theirs too: one member alone has no
        epistemic part.
        """
        if self.early is None:
            raise FreeTicketsError("the ensemble has no cascade: fit one by cascade(x, y) first")
        found: list[tuple[Any, ...]] = []
        batches = self.batches(x, batch_size)
        for places, said, joint in in_turn(
            self.early, batches, self._ask, self.combine, batch_size
        ):
            asked = np.full(len(places), len(said))
            unsure = self.task.uncertainty(said, joint)
            found.append((places, joint, asked, *vars(unsure).values()))
        places, *columns = map(np.concatenate, zip(*found, strict=True))
        joint, asked, *columns = (column[np.argsort(places)] for column in columns)
        return EarlyAnswers(joint, asked, type(unsure)(*columns))

    def _ask(self, number: int, inputs: torch.Tensor) -> Array:
        """What one member says, (1, n, C), at a temperature of its own, if it has one."""
        with looked_up(inputs):
            said = self.task.predictions(self._predictors[number](inputs)[None])
        if self.temperature is None or self.temperature.scope == "ensemble":
            return said
        its = self.temperature.values[number : number + 1]
        return replace(self.temperature, values=its).scale_members(said)

    def combine(self, members: Array) -> Array:
        """The ensemble's prediction, (N, ...), made from what `member_predictions` returned."""
        combined = self.task.joined(members, self.info["combine"])
        return combined if self.temperature is None else self.temperature.scale_ensemble(combined)

    def predict(self, x: Any, batch_size: int = 256) -> npt.NDArray[Any]:
        """The answer to each sample, (N, ...), as the task gives it.

        For classification that is the most probable class, named as in the training labels: the
        number of an output, from 0, unless the labels were something else, such as 1 to K or
        strings.
        """
        return self.task.answers(self._prediction(x, batch_size), self.labels)

    @property
    def labels(self) -> Classes:
        """The classes, and what the training labels called them."""
        return Classes(self.classes, tuple(self.info.get("labels", ())))

    def _held_out(
        self, x: Any, y: Any, batch_size: int, what: str
    ) -> tuple[Array, npt.NDArray[Any]]:
        """What the members say at no temperature, and labels as the networks have learned them."""
        self._need_classes(what)
        said = self.with_temperature(None).member_log_proba(x, batch_size)
        return said, self.task.targets(as_array(y, "y"), self.labels)

    def _need_classes(self, what: str) -> None:
        if not self.task.has_classes:
            raise FreeTicketsError(f"{what} classes, and {task_name(self.task)} has none")

    def uncertainty(self, x: Any, batch_size: int = 256) -> Any:
        """How unsure the ensemble is about each sample, and why; for classes, an `Uncertainty`."""
        said = self._member_predictions(x, batch_size)
        parts = [self.task.uncertainty(members, self.combine(members)) for members in said]
        names = [field.name for field in fields(parts[0])]
        return type(parts[0])(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))

    def batches(
        self, x: Any, batch_size: int = 256, *, normalised: bool = True
    ) -> Iterator[torch.Tensor]:
        """Inputs as the networks take them, in order, on their device.

        Images are normalised as in training, or else scaled to [0, 1].
        """
        shape, integers = tuple(self.info["input_shape"]), bool(self.info.get("integers"))
        for split in unlabelled(x, shape, integers, batch_size):
            pixels = split.dtype == torch.uint8
            if pixels and not self.info["mean"]:
                raise FreeTicketsError(
                    "the ensemble was trained on floats: give floats, prepared in the same way"
                )
            mean, std = (self.info[n] if pixels and normalised else () for n in ("mean", "std"))
            for batch, _ in Batches(split, batch_size, mean=mean, std=std, shuffle=False).epoch(0):
                yield batch.to(self._device)

    def save(self, folder: str | Path) -> None:
        """Writes tickets and temperature for `load`, replacing any ensemble that was there."""
        folder = Path(folder)
        # First, and the new ones last: no tickets may ever lie beside a temperature of others.
        for name in (_CASCADE, _CALIBRATION):
            (folder / name).unlink(missing_ok=True)
        for number, ticket in enumerate(self.tickets, start=1):
            info = {**ticket.info, "number": number, "tickets": len(self.tickets)}
            info.pop("settings", None)  # members of several runs may be brought together
            replace(ticket, info=info).save(ticket_path(folder, number))
        for file in _ticket_files(folder)[len(self.tickets) :]:
            file.unlink()
        for name, fitted in ((_CALIBRATION, self.temperature), (_CASCADE, self.early)):
            if fitted is not None:
                write_json(folder / name, fitted.as_dict())


def load(
    folder: str | Path, model: Callable[[], nn.Module] | str | None = None, *, device: str = "cpu",
    partial: bool = False, method: Method | None = None, task: Task | str | None = None,
    compile: bool = True,  # noqa: A002 (the word that users know)
) -> Ensemble:  # fmt: skip
    """Loads the ensemble of a run folder, or of anything that `Ensemble.save` wrote.

    Args:
        folder: The folder that holds `tickets/`.
        model: The factory of the network, if it is not one of FreeTickets' own: a loaded folder
            must not choose what code runs.
        device: Where to predict.
        partial: Accept a run that has not yet collected all its tickets.
        method: The method that made it, if it is your own and not registered.
        task: What was learned, if it is a task of your own: an object, or "module:Class".
        compile: Whether members may be compiled; see `Ensemble`.
    """
    folder = Path(folder)
    tickets = []
    for file in _ticket_files(folder):
        tickets.append(ticket := Ticket.load(file))
        number = ticket.info.get("number")
        if number is not None and file != ticket_path(folder, number):
            raise FreeTicketsError(f"{file} is ticket {number}: give it its own name again")
    if not tickets:
        raise FreeTicketsError(f"no tickets in {folder}: is it the folder of a run?")
    info = tickets[0].info
    if len(tickets) < info.get("tickets", 0) and not partial:
        raise FreeTicketsError(
            f"{folder} has {len(tickets)} of {info['tickets']} tickets: the run is still training, "
            "or was stopped; run its train command again to finish it"
        )
    if len({ticket.info.get("settings") for ticket in tickets}) > 1:
        belong = f"the tickets in {folder} belong to different runs"
        raise FreeTicketsError(f"{belong}: load each run from a folder of its own")
    build = bind(create, {**info, "model": model}) if isinstance(model, str) else model
    ensemble = Ensemble(tickets, build, device, task=task, method=method, compile=compile)
    for name, take in _FITTED.items():
        if (path := folder / name).exists():
            try:
                ensemble = take(ensemble, read_json(path))
            except FreeTicketsError as error:
                hint = "remove it, and fit it again"
                raise DamagedFileError(f"{path} can't be used ({error}): {hint}") from error
    return ensemble


# What may lie beside tickets, in the order in which it is taken: a cascade is for a temperature.
_FITTED: dict[str, Callable[[Ensemble, Any], Ensemble]] = {
    _CALIBRATION: lambda it, saved: it.with_temperature(Temperature.from_dict(saved)),
    _CASCADE: lambda it, saved: it.with_cascade(Cascade.from_dict(saved)),
}


def _ticket_files(folder: Path) -> list[Path]:
    return sorted((folder / "tickets").glob("[0-9]*.safetensors"))
