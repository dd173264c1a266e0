"""The ways that the layers of a network take: chosen once, kept, and told in words."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from . import ops
from .choice import DIRECTIONS, Basis, Costs, Work, basis, convolution_ways, linear_ways
from .library import Geometry, instruction_set, lanes

# Batches are told apart in steps that are groups for every instruction set: a run that goes on with
# another one finds what it has chosen.
_STEP = 16

_SPARSE, _PYTORCH, _WINOGRAD = "sparse", "PyTorch", "Winograd"


class Choices:
    """The ways of a network's layers; made once, then kept."""

    def __init__(self) -> None:
        self._basis = basis()
        self._kernels = [instruction_set()]
        self._made: dict[str, int] = {}

    @property
    def costs(self) -> Costs:
        """What choices rest on."""
        return self._basis.effective

    def conv2d(self, name: str, geometry: Geometry, nonzeros: int, x: Tensor) -> int:
        """Returns what `ops.conv2d` takes, for groups."""
        groups, _, height, width, width_of_group = x.shape
        if width_of_group != lanes():
            return 0
        samples, batch = _batch(groups * width_of_group)
        work = Work(geometry, nonzeros, samples, height, width)
        key = f"{_layer(name, geometry, nonzeros)}, maps of {height}x{width}, {batch}"
        if key not in self._made:
            self._made[key] = convolution_ways(work, self.costs)
        return self._made[key]

    def linear(self, name: str, geometry: Geometry, nonzeros: int, x: Tensor) -> int:
        """Returns what `linear` takes."""
        outputs, inputs = geometry.shape[:2]
        samples, batch = _batch(x.shape[0])
        key = f"{_layer(name, geometry, nonzeros)}, {batch}"
        if key not in self._made:
            self._made[key] = linear_ways(inputs, outputs, nonzeros, samples, self.costs)
        return self._made[key]

    def state_dict(self) -> dict[str, Any]:
        """Returns what was chosen, in words, and what that rests on.

        The ways of a layer are those of its forward pass, its input gradient and its weight
        gradient.
        """
        costs, source, winograd = self._basis
        return {
            "kernels": list(self._kernels),
            "winograd": winograd,
            "costs": source,
            "nanoseconds": costs.plain(),
            "ways": {key: words(ways) for key, ways in self._made.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keeps these choices, and rests further ones on the same, on whatever machine this is."""
        if "ways" not in state:
            return  # nothing was chosen
        costs = Costs.of(state["nanoseconds"])
        self._basis = (
            Basis(costs, state["costs"], state["winograd"])
            if costs is not None  # else another version chose: what it did is kept all the same
            else self._basis._replace(winograd=state["winograd"])
        )
        self._kernels = list(dict.fromkeys([*state["kernels"], instruction_set()]))
        self._made = {key: _ways(told) for key, told in state["ways"].items()}


def difference(before: Mapping[str, Any], now: Choices | None) -> str | None:
    """What to say if a run goes on with other kernels than its folder tells of."""
    used = before.get("kernels", [])
    if not used or (now is not None and instruction_set() == used[-1]):
        return None
    if now is None:
        how = "without them: it will be slower, and its last bits differ (are they built here?)"
    else:
        how = f"with the {instruction_set()} ones: its layers keep their ways, but "
        how += "last bits may differ"
    return f"the run has used the {used[-1]} kernels so far and goes on {how}"


def joined(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What several `state_dict`s of one run's parts say together."""
    found: dict[str, Any] = {"kernels": [], "ways": {}}
    for record in filter(None, records):
        kernels = list(dict.fromkeys([*found["kernels"], *record["kernels"]]))
        found = {**record, "kernels": kernels, "ways": {**found["ways"], **record["ways"]}}
    return found if found["kernels"] else {}


def words(ways: int) -> str:
    """The ways of the three directions, in words.

    Example:
        >>> words(ops.FORWARD << ops.WINOGRAD | ops.WEIGHT_GRADIENT)
        'Winograd / sparse / PyTorch'
    """
    return " / ".join(
        _WINOGRAD if ways & direction << ops.WINOGRAD else _PYTORCH if ways & direction else _SPARSE
        for direction in DIRECTIONS
    )


def _ways(told: str) -> int:
    """Undoes `words`."""
    bits = {_SPARSE: 0, _PYTORCH: 1, _WINOGRAD: 1 << ops.WINOGRAD}
    return sum(bits[word] * d for word, d in zip(told.split(" / "), DIRECTIONS, strict=True))


def _layer(name: str, geometry: Geometry, nonzeros: int) -> str:
    return f"{name}: {nonzeros} of {math.prod(geometry.shape)} weights"


def _batch(samples: int) -> tuple[int, str]:
    """The largest batch that is chosen for along with this one, and all of these in words."""
    most = max(1, -(-samples // _STEP)) * _STEP
    return most, f"{most - _STEP + 1} to {most} samples"
