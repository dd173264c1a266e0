"""Structures: where the active weights of a layer may lie, so that hardware can use the zeros.

Every structure sees a weight as rows of units. A unit is active as a whole or not at all, and all
rows have equally many active units:

    structure      row                               unit
    unstructured   the whole layer                   one weight
    2:4            4 consecutive inputs, 2 active    one weight
    block-4x4      the whole layer                   4 outputs x 4 inputs, all kernel positions
    fan-in         the inputs of one output          one weight
"""

import contextlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import FreeTicketsError, UnknownNameError
from .distribution import DEFAULT_SPARSITY, Distribution, Shapes, Sparsity, allocate
from .topology import random_mask, select_top

# How far a sparsity may be from the one that a structure dictates, and still be meant as it.
_ROUNDED = 0.01


class Structure(ABC):
    """A constraint on masks. A weight's first dimension counts as its outputs.

    Its `form` is how it is written, with the names of its numbers.
    """

    form: ClassVar[str]

    def __str__(self) -> str:
        return self.form.format(**vars(self))

    @abstractmethod
    def dimensions(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Rows, units of a row and weights of a unit; raises if the shape does not fit."""

    def fits(self, shape: Sequence[int]) -> bool:
        """Tells whether a layer of this shape can have the structure."""
        with contextlib.suppress(FreeTicketsError):
            return bool(self.dimensions(shape))
        return False

    def settle(self, sparsity: Sparsity) -> Sparsity:
        """The sparsity that a network gets which is asked for this one."""
        return sparsity

    def allocate(
        self, shapes: Shapes, sparsity: Sparsity, distribution: Distribution
    ) -> dict[str, int]:
        """Returns the number of non-zeros of each layer: what `allocate` gives it, rounded.

        Layers whose shapes do not fit stay dense, outside the budget, as those that a distribution
        makes dense.
        """
        fitting = {name: shape for name, shape in shapes.items() if self.fits(shape)}
        if shapes and not fitting:
            name, shape = next(iter(shapes.items()))
            raise FreeTicketsError(
                f"no layer can have structure '{self}', from {name!r} of shape {tuple(shape)} on: "
                "choose a smaller one, or 'fan-in'"
            )
        if distribution == "uniform-dense-first" and next(iter(shapes)) not in fitting:
            distribution = "uniform"  # the first layer is dense as it is
        counts = {name: math.prod(shape) for name, shape in shapes.items()}
        for name, wanted in allocate(fitting, self.settle(sparsity), distribution).items():
            if wanted < counts[name]:
                counts[name] = self.round_count(shapes[name], wanted)
        return counts

    def random(self, shape: torch.Size, count: int, generator: torch.Generator) -> Tensor:
        """Draws a mask of this structure with exactly `count` active entries."""
        everywhere = torch.ones(shape, dtype=torch.bool)
        return self.select(torch.rand(shape, generator=generator), count, everywhere, generator)

    def round_count(self, shape: Sequence[int], count: int) -> int:
        """The nearest number of active weights that a layer with this structure can have."""
        rows, units, size = self.dimensions(shape)
        return min(max(1, round(count / (rows * size))), units) * rows * size

    def check(self, mask: Tensor) -> bool:
        """Tells whether a mask has this structure."""
        if not self.fits(mask.shape):
            return False
        grid = self._grid(mask)
        counts = grid.any(2).sum(1)
        return torch.equal(grid.any(2), grid.all(2)) and bool((counts == counts[0]).all())

    def select(
        self, scores: Tensor, count: int, candidates: Tensor, generator: torch.Generator,
        kept: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns the mask of `count` weights of this structure with the highest total score.

        It holds the units that are `kept`, and candidates: a unit is one if all its weights are.
        Ties are broken at random.
        """
        where = f"{count} weights in shape {tuple(scores.shape)}"
        if count != (nearest := self.round_count(scores.shape, count)):
            raise FreeTicketsError(f"{self} can't have {where}: the nearest count is {nearest}")
        kept = torch.zeros_like(candidates) if kept is None else kept
        units, usable = self._grid(kept).all(2), self._grid(candidates).all(2)
        rows, _, size = self.dimensions(scores.shape)
        missing = count // (rows * size) - units.sum(1)
        if int(missing.min()) < 0:
            raise FreeTicketsError(f"{self} can't keep these weights: keep a part of a mask of its")
        if bool((usable.sum(1) < missing).any()):
            raise FreeTicketsError(f"{self} has too few candidates for {where}: choose fewer")
        new = _top_of_rows(self._totals(scores), missing, usable, generator)
        return self._mask(units | new, scores)

    def survive(
        self, scores: Tensor, count: int, mask: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Returns which weights of a mask with this structure stay when all but `count` go.

        These are whole units, as many as `count` weights fill, wherever they lie: the rows may be
        left with unequal counts, which `select` mends.
        """
        units = self._grid(mask).all(2)
        count //= self.dimensions(mask.shape)[2]
        return self._mask(select_top(self._totals(scores), count, units, generator), scores)

    def _totals(self, scores: Tensor) -> Tensor:
        grid = self._grid(scores)
        return grid.squeeze(2) if grid.shape[2] == 1 else grid.double().sum(2)

    def _grid(self, tensor: Tensor) -> Tensor:
        # Rows, units, weights of a unit.
        return tensor.reshape(self.dimensions(tensor.shape))

    def _mask(self, units: Tensor, like: Tensor) -> Tensor:
        # Undoes `_grid` for a choice of units.
        return units.reshape(like.shape)


@dataclass(frozen=True)
class Unstructured(Structure):
    """Every mask."""

    form = "unstructured"

    def dimensions(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """One row of single weights."""
        return 1, math.prod(shape), 1

    def random(self, shape: torch.Size, count: int, generator: torch.Generator) -> Tensor:
        """Draws a mask."""
        return random_mask(shape, count, generator)


@dataclass(frozen=True)
class NOfM(Structure):
    """Exactly n of each m consecutive inputs of an output, kernel positions counted as inputs.

    The sparsity is thereby given: `round_count` has one answer, and nothing is left to distribute.
    """

    form = "{n}:{m}"
    n: int
    m: int

    def __post_init__(self) -> None:
        if not 1 <= self.n <= self.m:
            raise FreeTicketsError(f"a structure N:M needs N from 1 to M, not '{self}'")

    def dimensions(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """One row for each m inputs."""
        if math.prod(shape[1:]) % self.m:
            units = f"a multiple of {self.m} inputs"
            raise FreeTicketsError(f"{self} needs {units}, not shape {tuple(shape)}: exclude it")
        return math.prod(shape) // self.m, self.m, 1

    def settle(self, sparsity: Sparsity) -> Sparsity:
        """The only sparsity that there is, or 0 for layers that a map leaves dense.

        Raises for another one that was asked for, and not by default.
        """
        if isinstance(sparsity, Mapping):
            return {name: self._agree(one) if one else 0.0 for name, one in sparsity.items()}
        return self._agree(1 - self.n / self.m if sparsity == DEFAULT_SPARSITY else sparsity)

    def allocate(
        self, shapes: Shapes, sparsity: Sparsity, distribution: Distribution
    ) -> dict[str, int]:
        """The only number for each layer; ERK and ER, which would make some dense, are left out."""
        chosen = "uniform" if distribution in ("erk", "er") else distribution
        return super().allocate(shapes, sparsity, chosen)

    def round_count(self, shape: Sequence[int], count: int) -> int:
        """The only number of active weights that there is."""
        return self.dimensions(shape)[0] * self.n

    def check(self, mask: Tensor) -> bool:
        """Tells whether a mask has this structure."""
        return super().check(mask) and int(mask.sum()) == self.round_count(mask.shape, 0)

    def _agree(self, sparsity: float) -> float:
        own = 1 - self.n / self.m
        if abs(sparsity - own) > _ROUNDED:
            raise FreeTicketsError(
                f"structure '{self}' has sparsity {own:.4g}, not {sparsity}: set sparsity to that"
            )
        return own


@dataclass(frozen=True)
class Blocks(Structure):
    """Whole blocks of this many outputs and inputs, all kernel positions together."""

    form = "block-{outputs}x{inputs}"
    outputs: int
    inputs: int

    def __post_init__(self) -> None:
        if self.outputs < 1 or self.inputs < 1:
            raise FreeTicketsError(f"a block needs at least one weight, not '{self}'")

    def dimensions(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """One row of blocks."""
        if shape[0] % self.outputs or shape[1] % self.inputs:
            units = f"multiples of {self.outputs} outputs and {self.inputs} inputs"
            raise FreeTicketsError(f"{self} needs {units}, not shape {tuple(shape)}: exclude it")
        size = self.outputs * self.inputs * math.prod(shape[2:])
        return 1, math.prod(shape) // size, size

    def _grid(self, tensor: Tensor) -> Tensor:
        down, across = tensor.shape[0] // self.outputs, tensor.shape[1] // self.inputs
        tiles = tensor.reshape(down, self.outputs, across, self.inputs, -1)
        return tiles.transpose(1, 2).reshape(self.dimensions(tensor.shape))

    def _mask(self, units: Tensor, like: Tensor) -> Tensor:
        blocks = units.view(like.shape[0] // self.outputs, like.shape[1] // self.inputs)
        plane = blocks.repeat_interleave(self.outputs, 0).repeat_interleave(self.inputs, 1)
        return plane.view(*plane.shape, *[1] * (like.dim() - 2)).expand(like.shape).contiguous()


@dataclass(frozen=True)
class FanIn(Structure):
    """Every output has equally many inputs (SRigL)."""

    form = "fan-in"

    def dimensions(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """One row for each output."""
        return shape[0], math.prod(shape[1:]), 1


def parse_structure(text: str) -> Structure:
    """Reads a structure: "unstructured", "fan-in", "2:4", "block-4x4" or other such numbers.

    Example:
        >>> parse_structure("block-8x1")
        Blocks(outputs=8, inputs=1)
    """
    for kind in (Unstructured, FanIn, NOfM, Blocks):
        if found := re.fullmatch(re.sub(r"{\w+}", r"(\\d+)", kind.form), text):
            return kind(*map(int, found.groups()))
    raise UnknownNameError("structure", text, ["unstructured", "fan-in", "2:4", "block-4x4"])


def check_masks(structure: Structure, masks: Mapping[str, Tensor]) -> None:
    """Raises unless all masks have a structure; a layer that has all its weights is no matter."""
    for name, mask in masks.items():
        if not bool(mask.all()) and not structure.check(mask):
            raise FreeTicketsError(
                f"the topology's mask of {name!r} does not have the structure '{structure}': "
                "give another, or leave structure out"
            )


def check_options(structure: str, **given: object) -> None:
    """Raises if a network is to have a structure, and an option is given that would break it."""
    words = {"pruning": "gradual pruning", "mixture": "a mixture of growth scores"}
    for name, value in given.items():
        if structure != "unstructured" and value not in (None, 0, "layer"):
            option = words.get(name, f"{name}={value!r}")
            raise FreeTicketsError(
                f"structure {structure!r} does not go with {option}: leave one of them out"
            )


def _top_of_rows(
    scores: Tensor, counts: Tensor, candidates: Tensor, generator: torch.Generator
) -> Tensor:
    if len(scores) == 1:
        return select_top(scores, int(counts[0]), candidates, generator)
    ties = torch.rand(scores.shape, generator=generator, dtype=torch.float64).numpy()
    values = scores.detach().cpu().double().numpy()
    # Candidates come first, among them the highest scores, and equal ones in random order.
    order = np.lexsort((ties, -values, ~candidates.cpu().numpy()))
    chosen = np.zeros(order.shape, dtype=bool)
    ranks = np.arange(order.shape[1])
    np.put_along_axis(chosen, order, ranks < counts.cpu().numpy()[:, None], axis=1)
    return torch.from_numpy(chosen).to(candidates.device)
