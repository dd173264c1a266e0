"""How the non-zeros of a network are shared out over its layers.

A distribution turns layer shapes and one sparsity into a density per layer; `allocate` turns the
densities into whole numbers of weights that add up exactly.
"""

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence

from ..errors import FreeTicketsError, UnknownNameError, check_known

Shapes = Mapping[str, Sequence[int]]
Sparsity = float | Mapping[str, float]
Distribution = str | Callable[[Shapes, float], Mapping[str, float]]

# The paper's: the share of zeros where a user names none.
DEFAULT_SPARSITY = 0.8


def uniform(shapes: Shapes, sparsity: float) -> dict[str, float]:
    """Gives every layer the same density."""
    return dict.fromkeys(shapes, 1.0 - sparsity)


def uniform_dense_first(shapes: Shapes, sparsity: float) -> dict[str, float]:
    """Like `uniform`, but the first layer stays dense, outside the budget (RigL's convention)."""
    return {**uniform(shapes, sparsity), next(iter(shapes)): 1.0}


def er(shapes: Shapes, sparsity: float) -> dict[str, float]:
    """Erdős-Rényi: density proportional to (out + in) / (out x in), whatever the kernel size."""
    ratios = {name: sum(shape[:2]) / math.prod(shape[:2]) for name, shape in shapes.items()}
    return _proportional(shapes, sparsity, ratios)


def erk(shapes: Shapes, sparsity: float, power: float = 1.0) -> dict[str, float]:
    """Erdős-Rényi-Kernel: density proportional to (sum of the shape / its product) ** power.

    Layers that would need more weights than they have become dense, and the others make room.

    Example:
        >>> densities = erk({"small": (8, 4), "large": (64, 32)}, 0.8)
        >>> densities["small"], round(densities["large"], 6)
        (1.0, 0.1875)
    """
    raw = {name: (sum(shape) / math.prod(shape)) ** power for name, shape in shapes.items()}
    return _proportional(shapes, sparsity, raw)


DISTRIBUTIONS: dict[str, Callable[[Shapes, float], Mapping[str, float]]] = {
    "erk": erk, "er": er, "uniform": uniform, "uniform-dense-first": uniform_dense_first,
}  # fmt: skip


def allocate(
    shapes: Shapes, sparsity: Sparsity, distribution: Distribution = "erk"
) -> dict[str, int]:
    """Returns the exact number of non-zeros of each layer.

    Args:
        shapes: The shape of each sparse layer's weight, by name.
        sparsity: The share of zeros over all these layers together, in [0, 1); or a map from layer
            name patterns to sparsities: the first pattern that matches a layer counts, a layer that
            none matches stays dense, and nothing is left to distribute.
        distribution: A name of `DISTRIBUTIONS`, or a function of shapes and sparsity to densities.

    Example:
        >>> allocate({"a": (10, 10), "b": (30, 10)}, 0.9, "uniform")
        {'a': 10, 'b': 30}
        >>> allocate({"a": (10, 10), "b": (30, 10)}, {"b": 0.5})
        {'a': 100, 'b': 150}
    """
    if not shapes:
        raise FreeTicketsError(
            "no layer to make sparse: the network has no weight that include/exclude let through"
        )
    if isinstance(sparsity, Mapping):
        return _whole_numbers(shapes, _from_map(shapes, sparsity))
    check_sparsity(sparsity)
    if isinstance(distribution, str):
        check_known("distribution", distribution, DISTRIBUTIONS)
        distribution = DISTRIBUTIONS[distribution]
    return _whole_numbers(shapes, distribution(shapes, sparsity))


def check_sparsity(sparsity: float) -> None:
    """Raises unless the value is a sparsity."""
    if not 0.0 <= sparsity < 1.0:
        raise FreeTicketsError(f"sparsity must be at least 0 and below 1, not {sparsity}")


def _proportional(shapes: Shapes, sparsity: float, raw: Mapping[str, float]) -> dict[str, float]:
    # Densities scale x raw, capped at 1, whose weights add up to the budget.
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    wishes = [raw[name] * size for name, size in sizes.items()]
    scale = level((1.0 - sparsity) * sum(sizes.values()), wishes, list(sizes.values()))
    return {name: min(1.0, scale * raw[name]) for name in shapes}


def level(total: float, wishes: Sequence[float], capacities: Sequence[int]) -> float:
    """The scale at which wishes add up to a total, none of them beyond its capacity.

    It is found as in RigL: solve for the scale, fill up what would exceed its capacity, and solve
    again for the rest.
    """
    free = list(zip(wishes, capacities, strict=True))
    while free:
        full = sum(capacities) - sum(capacity for _, capacity in free)
        scale = (total - full) / sum(wish for wish, _ in free)
        rest = [(wish, capacity) for wish, capacity in free if scale * wish <= capacity]
        if len(rest) == len(free):
            return scale
        free = rest
    return math.inf


def _from_map(shapes: Shapes, sparsities: Mapping[str, float]) -> dict[str, float]:
    for pattern, sparsity in sparsities.items():
        check_sparsity(sparsity)
        if not any(matches(name, pattern) for name in shapes):
            raise UnknownNameError("layer in the sparsity map:", pattern, shapes)
    return {
        name: 1.0 - next((s for pattern, s in sparsities.items() if matches(name, pattern)), 0.0)
        for name in shapes
    }


def matches(name: str, pattern: str) -> bool:
    """Tells whether a glob pattern fits a weight's name or the name of its module."""
    return any(fnmatch.fnmatchcase(own, pattern) for own in (name, name.rpartition(".")[0]))


def _whole_numbers(shapes: Shapes, densities: Mapping[str, float]) -> dict[str, int]:
    # The total is the rounded sum of what the layers wish for.
    wishes = []
    for name, shape in shapes.items():
        density = densities.get(name, math.nan)
        if not 0.0 <= density <= 1.0:
            raise FreeTicketsError(
                f"the distribution gives layer {name!r} density {density}; it must lie in [0, 1]"
            )
        wishes.append(density * math.prod(shape))
    counts = dict(zip(shapes, round_to(round(sum(wishes)), wishes), strict=True))
    if empty := [name for name, count in counts.items() if count == 0]:
        raise FreeTicketsError(
            f"this sparsity leaves layer {empty[0]!r} without a single weight: lower it, exclude "
            "the layer, or choose another distribution"
        )
    return counts


def round_to(total: int, shares: Sequence[float]) -> list[int]:
    """Rounds shares by the largest remainder, so that they add up to `total`."""
    counts = [math.floor(share) for share in shares]
    by_remainder = sorted(range(len(counts)), key=lambda i: counts[i] - shares[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
