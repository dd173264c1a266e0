"""A cell: one training that rows of tables share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..methods import Method


@dataclass(frozen=True)
class Cell:
    """One training, but for its seed; two rows that need the same one have equal cells.

    Attributes:
        dataset: The key of the data set; a scale says which data stand for it.
        model: The paper's network; a scale says which one stands for it.
        method: The method with all its options, defaults filled in.
        settings: Of the training, as `Config` calls them, where the cell has its own.
        label: What it is called; empty for a name made of the above.
        of: The cell whose first trainings are the members, where nothing is trained for this one.

    Example:
        >>> from freetickets.methods import EDST
        >>> short = Cell("cifar10", "wrn-28-10", EDST())
        >>> short == Cell("cifar10", "wrn-28-10", EDST(tickets=3, sparsity=0.8))
        True
        >>> Cell("cifar10", "wrn-28-10", EDST(tickets=7, sparsity=0.9)).name
        'cifar10-wrn-28-10-edst-tickets=7-sparsity=0.9'
    """

    dataset: str
    model: str
    method: Method
    settings: tuple[tuple[str, Any], ...] = ()
    label: str = ""
    of: Cell | None = None

    @property
    def options(self) -> dict[str, Any]:
        """All options of the method."""
        return asdict(self.method)

    @property
    def name(self) -> str:
        """A name for people and folders, different for each cell: options that are not default."""
        if self.label:
            return self.label
        chosen = {
            each.name: getattr(self.method, each.name)
            for each in fields(self.method)
            if getattr(self.method, each.name) != each.default
        } | dict(self.settings)
        words = [f"{name}={_text(value)}" for name, value in chosen.items()]
        return "-".join([self.dataset, self.model, self.method.name, *words])


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
