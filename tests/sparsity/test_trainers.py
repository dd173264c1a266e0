"""Other people's trainers and wrappers: the two lines work in each, or one line says what to do."""

import os
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from lightning_fabric import Fabric
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import freetickets as ft
from freetickets.sparsity import Exploration, Sparsifier

from . import ranks
from .ranks import batch, loss_of, network
from .training import two_backends

EXAMPLES = Path(__file__).parents[2] / "examples"
# Theirs may warn of what they like; ours would be that a topology is lost.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error:.*topology"),
    two_backends,
]


def sparsify(model, optimizer, backend, seed=0):
    schedule = Exploration(interval=3)
    return Sparsifier(model, optimizer, 0.8, exploration=schedule, backend=backend, seed=seed)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, sparsifier, backward=Tensor.backward, steps=range(10)):
    """A loop with the two lines."""
    for step in steps:
        backward(loss_of(model, batch(step)))
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.step()


def assert_is_the_plain_loop(model, sparsifier, backend, accumulate=1):
    expected = network()
    optimizer = adam(expected)
    other = sparsify(expected, optimizer, backend)
    for step in range(10):
        (loss_of(expected, batch(step)) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        other.step()
    assert sparsifier.steps == other.steps == 10 // accumulate
    assert_equal(model, sparsifier, expected, other)


def assert_equal(model, sparsifier, expected, other):
    assert sparsifier.digest == other.digest
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def load_module(path):
    return types.SimpleNamespace(**runpy.run_path(str(path), run_name=path.stem))


# ---- accelerate and Fabric: optimizers that wrap others


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate_trains_as_the_plain_loop_does(accumulate, backend):
    model = network()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    wrapped, optimizer = accelerator.prepare(model, adam(model))
    sparsifier = sparsify(wrapped, optimizer, backend)
    assert sparsifier.optimizer is optimizer.optimizer
    for step in range(10):
        with accelerator.accumulate(wrapped):
            train(wrapped, optimizer, sparsifier, accelerator.backward, range(step, step + 1))
    assert_is_the_plain_loop(model, sparsifier, backend, accumulate)


def test_accelerates_own_checkpoints_hold_the_sparsifier(tmp_path, backend):
    for seed, steps in ((0, range(6)), (1, range(6, 10))):
        accelerator, model = Accelerator(cpu=True), network()
        model, optimizer = accelerator.prepare(model, adam(model))
        sparsifier = sparsify(model, optimizer, backend, seed)
        accelerator.register_for_checkpointing(sparsifier)
        if seed:
            accelerator.load_state(str(tmp_path))
        train(model, optimizer, sparsifier, accelerator.backward, steps)
        # The last step explored: half of the active weights are new, and zero.
        accelerator.save_state(str(tmp_path))
    assert_is_the_plain_loop(model, sparsifier, backend)


def test_fabric_trains_as_the_plain_loop_does(backend):
    fabric, inside = Fabric(accelerator="cpu", devices=1), network()
    model, optimizer = fabric.setup(inside, adam(inside))
    sparsifier = sparsify(model, optimizer, backend)
    train(model, optimizer, sparsifier, fabric.backward)
    assert_is_the_plain_loop(inside, sparsifier, backend)


# ---- Lightning and Hugging Face: killed, and resumed from their own checkpoints


class KilledError(Exception):
    pass


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()


def assert_resumes(make, kill, folder, steps):
    """Trains a whole run, and one that is killed and resumed; returns the latter's network.

    `make(seed, folder, callbacks, resumed)` returns a network, what trains it, and our callback.
    """
    ends = []
    for name, seed, killed, resumed in (
        ("whole", 0, False, False), ("killed", 0, True, False), ("killed", 1, False, True),
    ):  # fmt: skip
        model, fit, sparse = make(seed, folder / name, [kill] if killed else [], resumed)
        try:
            fit()
        except KilledError:
            assert killed
        else:
            assert not killed
            assert sparse.sparsifier.steps == steps
            ends.append((model, sparse.sparsifier))
    assert_equal(*ends[1], *ends[0])
    return model


def test_lightning_is_resumed_from_its_own_checkpoint(tmp_path, backend):
    lightning = pytest.importorskip("pytorch_lightning")
    own = load_module(EXAMPLES / "lightning_callback.py")

    class Module(Holder, lightning.LightningModule):
        def training_step(self, inputs, _):
            return loss_of(self.net, inputs[0])

        def configure_optimizers(self):
            return adam(self)

    class Kill(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 8:  # two steps after the checkpoint
                raise KilledError

    def make(seed, folder, more, resumed):
        schedule = Exploration(interval=3)
        sparse = own.SparseTraining(0.8, exploration=schedule, backend=backend, seed=seed)
        keep = lightning.callbacks.ModelCheckpoint(folder, save_last=True)
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=3, callbacks=[sparse, keep, *more], logger=False,
            gradient_clip_val=0.1, accumulate_grad_batches=2,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        loader = DataLoader(TensorDataset(torch.cat([batch(step) for step in range(12)])), 16)
        module, last = Module(), folder / "last.ckpt" if resumed else None
        return module, lambda: trainer.fit(module, loader, ckpt_path=last), sparse

    module = assert_resumes(make, Kill(), tmp_path, 18)
    zeros = sum(int((p == 0).sum()) for p in (module.net[0].weight, module.net[2].weight))
    assert zeros >= 480


def test_hugging_faces_trainer_is_resumed_from_its_own_checkpoint(tmp_path, backend):
    transformers = pytest.importorskip("transformers")
    own = load_module(EXAMPLES / "hugging_face_callback.py")

    class Model(Holder):
        def forward(self, inputs):
            return {"loss": loss_of(self.net, inputs)}

    samples = [{"inputs": row} for step in range(6) for row in batch(step)]

    class Kill(transformers.TrainerCallback):
        def on_step_end(self, args, state, *_, **__):
            if state.global_step == 8:  # two steps after the checkpoint
                raise KilledError

    def make(seed, folder, more, resumed):
        schedule = Exploration(interval=3)
        sparse = own.SparseTraining(0.8, exploration=schedule, backend=backend, seed=seed)
        settings = transformers.TrainingArguments(
            str(folder), max_steps=14, per_device_train_batch_size=16, learning_rate=0.01,
            save_steps=6, use_cpu=True, report_to=[], disable_tqdm=True,
        )  # fmt: skip
        model, given = Model(), {"train_dataset": samples, "callbacks": [sparse, *more]}
        trainer = transformers.Trainer(model, settings, **given)
        return model, lambda: trainer.train(resume_from_checkpoint=resumed), sparse

    assert_resumes(make, Kill(), tmp_path, 14)


# ---- several processes


@pytest.fixture
def process_group():
    """A world of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("first", ["wrap", "sparsify"])
def test_data_parallel_training_of_one_process_is_the_plain_loop(first, backend, process_group):
    model = network()
    optimizer = adam(model)
    wrapped = DistributedDataParallel(model) if first == "wrap" else model
    sparsifier = sparsify(wrapped, optimizer, backend)
    wrapped = wrapped if first == "wrap" else DistributedDataParallel(model)
    train(wrapped, optimizer, sparsifier)
    assert_is_the_plain_loop(model, sparsifier, backend)


@pytest.mark.slow
def test_two_processes_train_one_network_with_one_topology(tmp_path, backend):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", ranks.__file__, str(tmp_path), backend]
    path = os.pathsep.join([str(Path(ft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    alone, sparsifier = ranks.train(0, 1, backend)
    for name, tensor in alone.state_dict().items():
        assert torch.equal(first["model"][name], second["model"][name])
        torch.testing.assert_close(first["model"][name], tensor, rtol=1e-4, atol=1e-5)
    for name, mask in sparsifier.topology.items():
        assert torch.equal(first["topology"][name], second["topology"][name])
        assert torch.equal(first["topology"][name], mask)


def test_sharded_weights_are_refused_in_one_line(refused, backend, process_group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    refused(r"'0\.weight' is sharded .* use Distributed", sparsify, model, adam(model), backend)
