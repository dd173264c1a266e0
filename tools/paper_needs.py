"""Print what the paper's main tables need: arithmetic, memory and network, as Markdown.

python tools/paper_needs.py --throughput 1e13 --ranks 8
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from freetickets.experiments import Experiment, load
from freetickets.experiments.grid import make_tasks
from freetickets.experiments.runner import Runner
from freetickets.experiments.scales import SCALES
from freetickets.methods.members import MemberNetwork
from freetickets.methods.plan import Plan
from freetickets.sparsity.layers import select_weights
from freetickets.sparsity.structure import parse_structure
from freetickets.training.job import Job

TABLES = ("cifar10", "cifar100", "imagenet")
COLUMNS = (
    "method", "FLOPs", "hours", "hours, masked", "3 x weights", "masks", "activations", "in all",
    "gradients a step", "of active weights",
)  # fmt: skip

_FLOAT = 4  # bytes
# Of a masked weight: where it is active, where it ever was, and the first as integers as wide as
# the weight, for which the hardware is fast.
_MASK = 1 + 1 + _FLOAT


@dataclass(frozen=True)
class Demand:
    """What one training needs, with masked weights in float32 and SGD; sizes are bytes."""

    flops: float  # operations of the whole training, zeros left out: the ledger's count
    executed_flops: float  # operations with the zeros that masked weights hold
    weights: int  # size of the parameters; their gradients and their momentum have the same
    masks: int  # size of what holds weights to their topology
    activations: int  # size of what one step keeps from its forward pass for its backward pass
    active: int  # size of the active parameters in the phase that has the most

    @property
    def memory(self) -> int:
        """All of it that lies on one device when a backward pass begins."""
        return 3 * self.weights + self.masks + self.activations


def needs_of(job: Job) -> Demand:
    """What a job needs; nothing is trained, no data is read and no network allocated."""
    ledger, batch_size = job.price(), job.config.batch_size
    assert batch_size is not None
    with torch.device("meta"):
        network = job.build_transformed()
    parameters = sum(parameter.numel() for parameter in network.parameters())
    masked, active = _held(job.plan, network)
    executed = ledger.flops
    if any(phase.sparsity for phase in ledger.phases):
        epochs = math.fsum(phase.epochs for phase in ledger.phases)
        executed = epochs * ledger.dense_flops / ledger.dense_epochs
    activations = activation_bytes(network, job.spec.shape, batch_size)
    sizes = _FLOAT * parameters, _MASK * masked, activations
    return Demand(ledger.flops, executed, *sizes, _FLOAT * (parameters - masked + active))


def _held(plan: Plan, network: nn.Module) -> tuple[int, int]:
    """How many weights have masks, and how many of these are active, in the densest phase."""
    phases = [phase for run in plan.runs for phase in run.phases]
    weights = select_weights(network, exclude=plan.sparse.exclude)
    sizes = {name: weight.numel() for name, weight in weights.items()}
    if any(phase.pruning or any(e.makes_sparse for e in phase.at_end) for phase in phases):
        return sum(sizes.values()), sum(sizes.values())  # all are there to be pruned
    if (sparsity := min(phase.sparsity for phase in phases)) == 0:
        return 0, 0
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    structure = parse_structure(plan.sparse.structure)
    counts = structure.allocate(shapes, sparsity, plan.sparse.distribution)
    sparse = [name for name in sizes if counts[name] < sizes[name]]
    return sum(sizes[name] for name in sparse), sum(counts[name] for name in sparse)


def activation_bytes(network: nn.Module, input_shape: tuple[int, ...], batch_size: int) -> int:
    """Counts the bytes that a training step's forward pass keeps for its backward pass.

    Autograd tells each tensor that it keeps. Parameters and buffers don't count, and what several
    operations keep counts once. On the meta device this takes neither memory nor time. Kernels for
    some other device may keep a little more or less: CUDA has dropout keep bytes, not floats.

    Example:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU())
        >>> floats = 12 + 5 + 5 + 1  # the input, ReLU's output, log-probabilities, the class weight
        >>> activation_bytes(network, (3, 2, 2), batch_size=1) == 4 * floats + 8  # and the label
        True
    """
    device = next(network.parameters()).device
    inputs = torch.zeros(batch_size, *input_shape, device=device)
    labels = torch.zeros(batch_size, dtype=torch.long, device=device)
    own = {_place(tensor) for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if _place(tensor) not in own:
            kept[_place(tensor)] = tensor  # alive, so that no other can take its place
        return tensor

    network.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        if isinstance(network, MemberNetwork):
            logits, labels = network(inputs, labels)
        else:
            logits = network(inputs)
        loss = cross_entropy(logits, labels)
    del loss
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def _place(tensor: Tensor) -> int:
    """What tells memory from other memory, also on the meta device, where all lies at 0."""
    return int(tensor.untyped_storage()._cdata)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table for each of the paper's."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", default=TABLES, metavar="TABLE")
    parser.add_argument("--throughput", type=float, default=1e13, help="FLOPs a second of a GPU")
    parser.add_argument("--ranks", type=int, default=8, help="processes of a data-parallel run")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as nowhere:
        runner = Runner(SCALES["paper"], nowhere)
        for number, name in enumerate(parsed.tables):
            lines = table(load(name), runner, parsed.throughput, parsed.ranks)
            print(*([""] if number else []), *lines, sep="\n")
    return 0


def table(experiment: Experiment, runner: Runner, throughput: float, ranks: int) -> Iterator[str]:
    """The lines of one table, and what all its trainings take."""
    tasks = {task.cell: task for task in make_tasks([experiment], runner.scale, seeds=1)}
    jobs = {cell: runner.outline(task) for cell, task in tasks.items()}
    found = {cell: needs_of(job) for cell, job in jobs.items()}
    (batch_size,) = {job.config.batch_size for job in jobs.values()}
    seeds = runner.scale.seeds(experiment)
    yield f"**{experiment.title}** ({experiment.paper}), batch {batch_size}"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---|{'---:|' * (len(COLUMNS) - 1)}"
    for row in experiment.rows:
        for cell in row.cells:
            yield f"| {' | '.join([row.label, *numbers(found[cell], throughput)])} |"
    counted = sum(needs.flops for needs in found.values())
    executed = sum(needs.executed_flops for needs in found.values())
    gradients = max(needs.weights for needs in found.values())
    sent = 2 * (ranks - 1) / ranks * gradients  # by each, to sum them up by a ring
    yield ""
    yield (
        f"{seeds} trainings of each row: {seeds * counted:.2e} FLOPs, "
        f"{seeds * (counted / throughput / 3600):,.0f} GPU hours, masked "
        f"{seeds * (executed / throughput / 3600):,.0f}. By a ring of {ranks} ranks each sends up "
        f"to {sent / 1e6:.0f} MB a step."
    )


def numbers(needs: Demand, throughput: float) -> list[str]:
    """The cells of one row, behind its name."""
    return [
        f"{needs.flops:.2e}".replace("e+", "e"),
        f"{needs.flops / throughput / 3600:.1f}",
        f"{needs.executed_flops / throughput / 3600:.1f}",
        f"{3 * needs.weights / 1e6:.0f} MB",
        f"{needs.masks / 1e6:.0f} MB",
        f"{needs.activations / 1e9:.2f} GB",
        f"{needs.memory / 1e9:.2f} GB",
        f"{needs.weights / 1e6:.0f} MB",
        f"{needs.active / 1e6:.0f} MB",
    ]


if __name__ == "__main__":
    sys.exit(main())
