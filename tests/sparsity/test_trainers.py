"""Other people's trainers and wrappers: the two lines work in each, or one line says what to do."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from lightning_fabric import Fabric
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

import freetickets as ft
from freetickets.errors import FreeTicketsError
from freetickets.kernels.library import available
from freetickets.sparsity import Exploration, Sparsifier

BACKENDS = ["masked", "auto"] if available() else ["masked"]

EXAMPLES = Path(__file__).parents[2] / "examples"
# Theirs may warn of what they like; ours would be that a topology is lost.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error:.*topology"),
    pytest.mark.parametrize("backend", BACKENDS),
]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 10))


def sparsify(model: nn.Module, optimizer: Any, backend: str, interval: int = 3) -> Sparsifier:
    return Sparsifier(
        model, optimizer, 0.8, exploration=Exploration(interval=interval), backend=backend
    )


def batch(step: int) -> Tensor:
    return torch.randn(16, 10, generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, inputs: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(inputs), inputs.flip(1))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def plain_loop(backend: str, steps: int = 10, accumulate: int = 1) -> tuple[nn.Module, Sparsifier]:
    """The loop that all trainers must equal."""
    model = network()
    optimizer = adam(model)
    sparsifier = sparsify(model, optimizer, backend)
    for step in range(steps):
        (loss_of(model, batch(step)) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        sparsifier.step()
    return model, sparsifier


def assert_equal(model: nn.Module, expected: nn.Module) -> None:
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- accelerate and Fabric: optimizers that wrap others


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate_trains_as_the_plain_loop_does(accumulate: int, backend: str) -> None:
    model = network()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    wrapped, optimizer = accelerator.prepare(model, adam(model))
    sparsifier = sparsify(wrapped, optimizer, backend)
    assert sparsifier.optimizer is optimizer.optimizer
    for step in range(10):
        with accelerator.accumulate(wrapped):
            accelerator.backward(loss_of(wrapped, batch(step)))
            optimizer.step()
            optimizer.zero_grad()
            sparsifier.step()
    expected, other = plain_loop(backend, accumulate=accumulate)
    assert sparsifier.steps == other.steps == 10 // accumulate
    assert sparsifier.digest == other.digest
    assert_equal(model, expected)


def test_accelerates_own_checkpoints_hold_the_sparsifier(tmp_path: Path, backend: str) -> None:
    def start(seed: int) -> tuple[Accelerator, nn.Module, Callable[[range], None], Sparsifier]:
        model = network()
        accelerator = Accelerator(cpu=True)
        model, optimizer = accelerator.prepare(model, adam(model))
        sparsifier = Sparsifier(
            model, optimizer, 0.8, exploration=Exploration(interval=3), backend=backend, seed=seed
        )
        accelerator.register_for_checkpointing(sparsifier)

        def train(steps: range) -> None:
            for step in steps:
                accelerator.backward(loss_of(model, batch(step)))
                optimizer.step()
                optimizer.zero_grad()
                sparsifier.step()

        return accelerator, model, train, sparsifier

    accelerator, _, train, _ = start(0)
    train(range(6))  # the last step explores: half of the active weights are new, and zero
    accelerator.save_state(str(tmp_path))
    accelerator, model, train, sparsifier = start(1)
    accelerator.load_state(str(tmp_path))
    train(range(6, 10))
    expected, other = plain_loop(backend)
    assert sparsifier.digest == other.digest
    assert_equal(model, expected)


def test_fabric_trains_as_the_plain_loop_does(backend: str) -> None:
    fabric, inside = Fabric(accelerator="cpu", devices=1), network()
    model, optimizer = fabric.setup(inside, adam(inside))
    sparsifier = sparsify(model, optimizer, backend)
    for step in range(10):
        fabric.backward(loss_of(model, batch(step)))
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.step()
    expected, other = plain_loop(backend)
    assert sparsifier.digest == other.digest
    assert_equal(inside, expected)


# ---- Lightning and Hugging Face: killed, and resumed from their own checkpoints


class KilledError(Exception):
    pass


def test_lightning_is_resumed_from_its_own_checkpoint(tmp_path: Path, backend: str) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    own = example("lightning_callback")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, inputs: list[Tensor], _: int) -> Tensor:
            return loss_of(self.net, inputs[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adam(self)

    class Kill(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 8:  # two steps after the checkpoint
                raise KilledError

    def fit(folder: Path, seed: int, *, killed: bool, resumed: bool) -> tuple[Any, Any]:
        sparse = own.SparseTraining(
            0.8, exploration=Exploration(interval=3), backend=backend, seed=seed
        )
        keep = lightning.callbacks.ModelCheckpoint(folder, save_last=True)
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=3,
            callbacks=[sparse, keep, *([Kill()] if killed else [])],
            gradient_clip_val=0.1,
            accumulate_grad_batches=2,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader = DataLoader(TensorDataset(torch.cat([batch(step) for step in range(12)])), 16)
        module = Module()
        try:
            trainer.fit(module, loader, ckpt_path=folder / "last.ckpt" if resumed else None)
        except KilledError:
            assert killed
        return module, sparse.sparsifier

    whole, expected = fit(tmp_path / "whole", 0, killed=False, resumed=False)
    assert expected.steps == 18
    fit(tmp_path / "killed", 0, killed=True, resumed=False)
    module, sparsifier = fit(tmp_path / "killed", 1, killed=False, resumed=True)
    assert sparsifier.steps == 18
    assert sparsifier.digest == expected.digest
    assert_equal(module, whole)
    zeros = sum(int((p == 0).sum()) for p in (module.net[0].weight, module.net[2].weight))
    assert zeros >= 480


def test_lightnings_wrapped_optimizer_is_looked_through(backend: str) -> None:
    pytest.importorskip("pytorch_lightning")
    from pytorch_lightning.core.optimizer import LightningOptimizer

    model = network()
    optimizer = adam(model)
    assert sparsify(model, LightningOptimizer(optimizer), backend).optimizer is optimizer


def test_hugging_faces_trainer_is_resumed_from_its_own_checkpoint(
    tmp_path: Path, backend: str
) -> None:
    transformers = pytest.importorskip("transformers")
    own = example("hugging_face_callback")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            return {"loss": loss_of(self.net, inputs)}

    class Samples(Dataset):
        def __len__(self) -> int:
            return 96

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"inputs": batch(index // 16)[index % 16]}

    class Kill(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step == 8:  # two steps after the checkpoint
                raise KilledError

    def fit(folder: Path, seed: int, *, killed: bool, resumed: bool) -> tuple[Any, Any]:
        sparse = own.SparseTraining(
            0.8, exploration=Exploration(interval=3), backend=backend, seed=seed
        )
        settings = transformers.TrainingArguments(
            str(folder),
            max_steps=14,
            per_device_train_batch_size=16,
            learning_rate=0.01,
            save_steps=6,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        callbacks = [sparse, *([Kill()] if killed else [])]
        model = Model()
        trainer = transformers.Trainer(
            model, settings, train_dataset=Samples(), callbacks=callbacks
        )
        try:
            trainer.train(resume_from_checkpoint=resumed)
        except KilledError:
            assert killed
        return model, sparse.sparsifier

    whole, expected = fit(tmp_path / "whole", 0, killed=False, resumed=False)
    assert expected.steps == 14
    fit(tmp_path / "killed", 0, killed=True, resumed=False)
    model, sparsifier = fit(tmp_path / "killed", 1, killed=False, resumed=True)
    assert sparsifier.steps == 14
    assert sparsifier.digest == expected.digest
    assert_equal(model, whole)


# ---- several processes


@pytest.fixture
def process_group() -> Iterator[None]:
    """A world of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("first", ["wrap", "sparsify"])
def test_data_parallel_training_of_one_process_is_the_plain_loop(
    first: str, backend: str, process_group: None
) -> None:
    model = network()
    optimizer = adam(model)
    if first == "wrap":
        wrapped = DistributedDataParallel(model)
        sparsifier = sparsify(wrapped, optimizer, backend)
    else:
        sparsifier = sparsify(model, optimizer, backend)
        wrapped = DistributedDataParallel(model)
    for step in range(10):
        optimizer.zero_grad()
        loss_of(wrapped, batch(step)).backward()
        optimizer.step()
        sparsifier.step()
    expected, other = plain_loop(backend)
    assert sparsifier.digest == other.digest
    assert_equal(model, expected)


@pytest.mark.slow
def test_two_processes_train_one_network_with_one_topology(tmp_path: Path, backend: str) -> None:
    script = Path(__file__).with_name("ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script), str(tmp_path), backend]
    path = os.pathsep.join([str(Path(ft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    spec = importlib.util.spec_from_file_location("ranks", script)
    assert spec is not None
    assert spec.loader is not None
    ranks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ranks)
    alone, sparsifier = ranks.train(0, 1, backend)
    for name, tensor in alone.state_dict().items():
        assert torch.equal(first["model"][name], second["model"][name])
        torch.testing.assert_close(first["model"][name], tensor, rtol=1e-4, atol=1e-5)
    for name, mask in sparsifier.topology.items():
        assert torch.equal(first["topology"][name], second["topology"][name])
        assert torch.equal(first["topology"][name], mask)


def test_sharded_weights_are_refused_in_one_line(backend: str, process_group: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(FreeTicketsError, match=r"'0\.weight' is sharded .* use Distributed"):
        sparsify(model, adam(model), backend)
