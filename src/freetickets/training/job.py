"""A job: settings brought together with data and a network, ready to be priced and trained."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..config import Config
from ..data import DatasetSpec
from ..data.batches import digest_split
from ..data.loading import load_validation
from ..data.samples import AnySplit
from ..errors import FreeTicketsError, check_known
from ..methods import Method, Plan
from ..methods.timeline import suit_interval, warn_of_few_explorations
from ..models import create_model
from ..models.identity import network_identity
from ..tasks import Classification, Task, task_name
from ..ticket import Ticket
from .ledger import Ledger, price
from .optimizer import OPTIMIZERS
from .progress import Reporter

PARTS = "parts"  # in a run's folder: what is trained side by side, until all is done


@dataclass
class Job:
    """One run of one method, from resolved settings to tickets.

    `load` returns the training data, when it is needed. A model, validation data and a method of
    one's own stand for those that the settings name.
    """

    config: Config
    spec: DatasetSpec
    load: Callable[[], AnySplit]
    model: Callable[[], nn.Module] | None = None
    load_own_validation: Callable[[], AnySplit] | None = None
    own_method: Method | None = None

    def __post_init__(self) -> None:
        OPTIMIZERS.find(self.config.optimizer)

    @cached_property
    def method(self) -> Method:
        """What makes the plan."""
        return self.own_method or self.config.make_method()

    @cached_property
    def plan(self) -> Plan:
        """What will be trained: a short training explores more often than the recipe says.

        Members are combined as the settings say, or the method, or else the task.
        """
        plan = self.method.plan(self.config.setting())
        known, wanted = self.task.rules, self.config.combine
        if wanted is not None:
            check_known("rule to combine members", wanted, known)
        rule = wanted or (plan.combine if plan.combine in known else known[0])
        plan = replace(plan, method=self.config.method, combine=rule)
        if self.config.options.get("interval") is not None:
            return plan
        # The batches that are sure to be there: a class may hold a sample more out than its share.
        return suit_interval(plan, max(1, self._train_size // (self.config.batch_size or 1)))

    @cached_property
    def task(self) -> Task:
        """What networks learn, with the recipe's label smoothing where it has none of its own."""
        task, smoothing = self.spec.task, self.config.label_smoothing
        if isinstance(task, Classification) and task.label_smoothing is None:
            return replace(task, label_smoothing=smoothing)
        return task

    def warn_of_few_explorations(self, warn: Callable[[str], None]) -> None:
        """Says so before the training does, if a run of the plan hardly explores."""
        warn_of_few_explorations(self.plan, self._steps_per_epoch(self._train_size), warn)

    @property
    def _train_size(self) -> int:
        # Samples in one epoch, by what is known without reading the data.
        size = self.spec.train_size
        left = size - round(size * (self.config.validation or 0.0))
        return min(left, self.config.train_samples or left)

    def _steps_per_epoch(self, train_size: int) -> int:
        full, rest = divmod(train_size, self.config.batch_size or 1)
        return max(1, full + (rest > 1))  # as `Batches` counts them

    def build_transformed(self) -> nn.Module:
        """Returns a new network as the method trains it."""
        return self.method.transform(self.build())

    def build(self) -> nn.Module:
        """Returns a new network, before the method transforms it."""
        if self.model is not None:
            return self.model()
        config = self.config
        return create_model(
            config.model, self.spec.shape, self.task.outputs(self.spec), **config.model_options
        )

    def price(self, train_size: int | None = None) -> Ledger:
        """What it will cost; the data is not read, the network not allocated."""
        config = self.config
        assert config.batch_size is not None
        train_size = self._train_size if train_size is None else train_size
        # A factory, or a network that is random even in evaluation, draws from torch's generator.
        with torch.random.fork_rng(devices=[]):
            return price(
                self.plan, _outline(self.build), self.spec.shape,
                transformed=_outline(self.build_transformed) if self.method.transforms else None,
                train_size=train_size, batch_size=config.batch_size,
                steps_per_epoch=self._steps_per_epoch(train_size), dense_epochs=config.dense_epochs,
                integers=self.spec.integers,
            )  # fmt: skip

    def load_data(self) -> tuple[AnySplit, AnySplit | None]:
        """Returns the training data, and validation data if that is separate from it."""
        config, data = self.config, self.load()
        _check_labels(data, self.spec)
        if self.load_own_validation is not None:
            validation = self.load_own_validation()
        elif config.validation_data is not None:
            validation = load_validation(config.validation_data, self.spec, config.data_dir)
        else:
            return data, None
        _check_labels(validation, self.spec, "the validation data")
        theirs, ours = (
            f"labels of shape {(*each.labels.shape[1:],)} and {each.dtype} of shape {each.shape}"
            for each in (validation, data)
        )
        if theirs != ours:
            raise FreeTicketsError(f"the validation data have {theirs}, the training data {ours}")
        return data, validation

    def train(self, reporter: Reporter, only: int | None = None) -> list[Ticket]:
        """Trains, or goes on where the output folder says; for `only` see `Trainer`."""
        # Pricing a plan should not wait for what only training needs.
        from .parallel import lost_ranks_in_one_line
        from .trainer import Trainer

        with lost_ranks_in_one_line():
            return Trainer(self, reporter, only).train()

    def describe(self, data: AnySplit, validation: AnySplit | None) -> dict[str, Any]:
        """What each ticket says of its model and data, given what `load_data` returned."""
        config, spec = self.config, self.spec
        return {
            "model": config.model if self.model is None else "",
            "model_options": dict(config.model_options), "options": dict(config.options),
            "input_shape": list(spec.shape), "integers": spec.integers,
            "classes": list(spec.classes), "labels": list(spec.labels),
            "task": task_name(self.task), "task_options": spec.task.options,
            "outputs": self.task.outputs(spec), "mean": list(spec.mean), "std": list(spec.std),
            "dataset": spec.name, "image_size": config.image_size, "settings": config.identity,
            "network": self.network, "data": digest_split(data),
            "validation_data": None if validation is None else digest_split(validation),
        }  # fmt: skip

    @property
    def has_embedding(self) -> bool:
        """Whether the network looks up vectors for integers."""
        modules = _outline(self.build).modules()
        return any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in modules)

    @property
    def network(self) -> str | None:
        """A digest of how a network of the user's own computes; ours are told by their names."""
        if self.model is None and ":" not in self.config.model:
            return None
        return network_identity(_outline(self.build))


@torch.random.fork_rng(devices=[])  # the user's own factory draws from torch's generator
def _outline(build: Callable[[], nn.Module]) -> nn.Module:
    """A network with shapes but without values, made at once."""
    try:
        with torch.device("meta"), _NoInitialisation():
            return build()
    except FreeTicketsError:
        raise
    except Exception:  # a user's own factory may need real tensors
        return build()


class _NoInitialisation(TorchFunctionMode):
    # On the meta device torch takes a second to learn to fill nothing.
    _FILLERS = (Tensor.normal_, Tensor.uniform_, torch.nn.init.trunc_normal_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in self._FILLERS else func(*args, **(kwargs or {}))


def _check_labels(data: AnySplit, spec: DatasetSpec, what: str = "") -> None:
    what = what or spec.name
    if not len(data):
        raise FreeTicketsError(f"{what} has no samples")
    if not spec.task.has_classes:
        return
    low, high, classes = int(data.labels.min()), int(data.labels.max()), len(spec.classes)
    if low < 0 or high >= classes:
        raise FreeTicketsError(
            f"{what} has labels from {low} to {high}, but they must lie in 0 to {classes - 1}"
        )
