"""What the ranks of `test_parallel.py` do: each trains all cases and leaves its results in a file.

`python parallel_cases.py FOLDER COMMAND...` forks 2 and then 3 ranks, as PyTorch takes seconds to
import, with the environment that torchrun would give them. Those of a world of N work in FOLDER/N.
"""

import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo  # which the first optimizer would load, in each rank
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import freetickets as ft
from freetickets.cli import main
from freetickets.data import Batches, Split
from freetickets.errors import FreeTicketsError
from freetickets.kernels.library import available
from freetickets.methods.events import Collect
from freetickets.methods.plan import Phase, Plan, Run, Stretch
from freetickets.models.prepare import Whitening
from freetickets.seeds import derive
from freetickets.sparsity.sparsifier import Sparsifier
from freetickets.training import parallel
from freetickets.training.session import Session

OPTIMIZERS = {"sgd": 0.02, "adam": 1e-3, "adamw": 1e-3, "rmsprop": 1e-4}
BACKENDS = ("masked", "sparse") if available() else ("masked",)


def images(count=60):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    inputs = torch.randn(count, 1, 8, 8, generator=generator)
    inputs[torch.arange(count), 0, 2 * labels] += 1
    return inputs, labels


def network(norm=False):
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6) if norm else nn.Identity(), nn.Tanh(),
        nn.AvgPool2d(2), nn.Conv2d(6, 8, 3, padding=1),
        nn.BatchNorm2d(8) if norm else nn.Identity(), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 3),
    )  # fmt: skip


def whitened():
    return nn.Sequential(Whitening(1), *network()[2:4], nn.Conv2d(8, 8, 2), *network()[8:])


def overflowing():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))


def fit(method, model=network, data=None, **settings):
    """Trains 54 steps, a third of them with a batch that no two ranks share evenly."""
    digests: list[str] = []
    explore = Sparsifier.explore

    def noted(self, rate):
        explore(self, rate)
        digests.append(self.digest)

    options = {"batch_size": 10, "epochs": 9, "quiet": True, "device": "cpu", **settings}
    with patch.object(Sparsifier, "explore", noted):
        ensemble = method.fit(model, data or images(), **options)
    return {
        "digests": digests,
        "tickets": [ticket.state for ticket in ensemble.tickets],
        "topologies": [ticket.topology for ticket in ensemble.tickets],
        "scores": [ticket.info["validation_loss"] for ticket in ensemble.tickets],
    }


def edst(**options):
    # The first step of Adam moves all weights that were just grown by the same: an exploration
    # right after the escape, at step 39, would choose between them by rounding.
    return ft.EDST(tickets=2, interval=9, **options)


def same_as_one_process(world):
    """All that must not depend on the number of ranks."""
    results = {}
    for optimizer in OPTIMIZERS if world == 2 else ("sgd", "adam"):
        settings = {"optimizer": optimizer, "lr": OPTIMIZERS[optimizer]}
        for backend in BACKENDS:
            results[f"{optimizer}, {backend}"] = fit(edst(), backend=backend, **settings)
    if world == 2:
        for backend in BACKENDS:
            pruned = ft.PruneFineTune(tickets=1)
            results[f"pruned, {backend}"] = fit(pruned, lr=0.02, backend=backend, epochs=2)
        momentum = ft.DST(tickets=1, interval=4, grow="momentum")
        results["momentum"] = fit(momentum, lr=0.02, backend=BACKENDS[-1], epochs=3)
        results["whitened"] = fit(edst(), whitened, lr=0.02, backend=BACKENDS[-1])
    else:
        snip = ft.Static(tickets=1, criterion="snip")
        results["snip"] = fit(snip, lr=0.02, backend="masked", epochs=2)
        reserve = ft.DST(tickets=1, interval=4, explorer="top-kast")
        results["reserve"] = fit(reserve, lr=0.02, backend="masked", epochs=3)
    return results


@dataclass(frozen=True)
class Constant(ft.Dense):
    """Four epochs at one learning rate."""

    def plan(self, setting):
        phase = Phase("train", (Stretch(4.0, 0.05),), at_end=(Collect(),))
        return Plan("dense", (Run(0, (phase,)),), dense_epochs=4.0)


def normalised():
    """A network with BatchNorm, sparse by us, and dense by us and by PyTorch alone."""
    settings = {"batch_size": 12, "momentum": 0.9, "weight_decay": 1e-3, "validation": 0.0}
    (ours,) = fit(Constant(), lambda: network(norm=True), **settings)["tickets"]
    ranks = parallel.meet(torch.device("cpu"))
    batches = Batches(Split(*images()), 12, rank=ranks.rank, world=ranks.world, seed=0)
    torch.manual_seed(derive(0, "init"))
    model = network(norm=True)
    wrapped = DistributedDataParallel(model) if ranks.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for epoch in range(4):
        for inputs, labels in batches.epoch(epoch):
            optimizer.zero_grad()
            cross_entropy(wrapped(inputs), labels).backward()
            optimizer.step()
    return {
        "sparse": fit(edst(), lambda: network(norm=True), lr=0.02, backend=BACKENDS[-1]),
        "ours": ours,
        "theirs": {name: tensor.clone() for name, tensor in model.state_dict().items()},
    }


def troubles(folder):
    """What goes wrong on the last rank only, and what each rank makes of it."""
    last = parallel.rank() == int(os.environ["WORLD_SIZE"]) - 1
    errors = {}
    explore, step = Sparsifier.explore, Session.step

    def diverging(self, rate):
        if last:
            self._generator.manual_seed(99)
        explore(self, rate)

    with patch.object(Sparsifier, "explore", diverging):
        errors["topology"] = error_of(lambda: edst(grow="random"))
    inputs, labels = images()
    inputs[7] = 1e38  # overflows in one rank's slice
    errors["nan"] = error_of(edst, model=overflowing, data=(inputs, labels), validation=0.0)

    def interrupted(self, number, *args, **kwargs):
        if last and number == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, number, *args, **kwargs)

    with patch.object(Session, "step", interrupted):
        errors["stopped"] = error_of(edst, output=folder / "stopped", backend="masked", lr=0.02)
    resumed = fit(edst(), output=folder / "stopped", backend="masked", lr=0.02)
    errors["small"] = error_of(edst, batch_size=1)
    return {"errors": errors, "resumed": resumed}


def hanging():
    """The last rank sleeps: the others do not wait forever."""
    distributed.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
    last, step = parallel.rank() == int(os.environ["WORLD_SIZE"]) - 1, Session.step

    def asleep(self, number, *args, **kwargs):
        if last and number == 5:
            time.sleep(6)
        return step(self, number, *args, **kwargs)

    patience = patch.object(parallel, "TIMEOUT", timedelta(seconds=2))
    with patience, patch.object(Session, "step", asleep):
        return {"error": error_of(edst)}


def error_of(method, **settings):
    try:
        fit(method(), **settings)
    except FreeTicketsError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def run(folder, command):
    torch.set_num_threads(1)
    world = int(os.environ["WORLD_SIZE"])
    results: dict[str, Any] = {"same": same_as_one_process(world)}
    results["code"] = main([*command, "--output", str(folder / "resumed")])
    if world == 2:
        results["peaceful code"] = main([*command, "--output", str(folder / "peaceful")])
        results["normalised"] = normalised()
        results["hanging"] = hanging()
    else:
        results["troubles"] = troubles(folder)
    torch.save(results, folder / f"{parallel.rank()}.pt")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fork(world, folder, command):
    shared = {
        "TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0", "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "SECOND_PORT": str(free_port()),
    }  # fmt: skip
    children = []
    for rank in range(world):
        child = os.fork()
        if child:
            children.append(child)
            continue
        os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
        try:
            run(folder / str(world), command)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    for world in (2, 3):
        fork(world, Path(sys.argv[1]), sys.argv[2:])
