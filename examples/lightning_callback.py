"""Sparse training with Lightning: one callback for any module, which resumes from its checkpoints.

    python examples/lightning_callback.py --epochs 5
    python examples/lightning_callback.py --epochs 10  # continues where the first one ended

Needs `pip install pytorch-lightning`. With the package `lightning`, import `lightning.pytorch`.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import freetickets as ft
from freetickets.models import create_model


class SparseTraining(Callback):
    """Makes the module sparse and explores its topology, whatever the Trainer's other settings.

    Args:
        sparsity: The share of zeros.
        **options: Other arguments of the `Sparsifier`.
    """

    def __init__(self, sparsity: float = 0.8, **options: Any) -> None:
        self.options = {"sparsity": sparsity, **options}
        self.sparsifier: ft.Sparsifier | None = None
        self._saved: dict[str, Any] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the sparsifier: by now, module and optimizer are loaded from any checkpoint."""
        saved, self._saved = self._saved, None
        options = {**self.options, "topology": saved["topology"]} if saved else self.options
        self.sparsifier = ft.Sparsifier(pl_module, trainer.optimizers[0], **options)
        if saved:
            self.sparsifier.load_state_dict(saved)

    def on_before_optimizer_step(self, *_: Any) -> None:
        """Masks the gradients before Lightning clips them; leave it out if nothing is clipped."""
        self.sparsifier.mask_gradients()

    def on_train_batch_end(self, *_: Any) -> None:
        """The second of the two lines; a batch that only accumulates gradients does not count."""
        self.sparsifier.step()

    def on_train_end(self, *_: Any) -> None:
        """Releases the weights, which stay as they are."""
        self.sparsifier.detach()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of this callback."""
        return self.sparsifier.state_dict() if self.sparsifier else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps the state for later: there is no optimizer yet."""
        self._saved = state_dict or None


class Classifier(LightningModule):
    """A module like any other: it knows nothing about sparsity."""

    def __init__(self) -> None:
        super().__init__()
        self.net = create_model("mlp-256-256", (1, 28, 28), 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the ten classes."""
        return self.net(images)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimizer will do."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> None:
    """Trains on the embedded images, and prints how sparse and how good the network is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--output", type=Path, default=Path("runs/lightning"))
    parsed = parser.parse_args()
    train, test = (ft.data.load("fashion-mini", part) for part in ("train", "test"))
    images, labels = train.inputs[: parsed.samples] / 255, train.labels[: parsed.samples]
    last = parsed.output / "last.ckpt"
    sparse, model = SparseTraining(0.8), Classifier()
    trainer = Trainer(
        accelerator="cpu", max_epochs=parsed.epochs, gradient_clip_val=1.0, logger=False,
        callbacks=[sparse, ModelCheckpoint(parsed.output, save_last=True)],
        enable_progress_bar=False,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    trainer.fit(model, loader, ckpt_path=last if last.exists() else None)
    with torch.no_grad():
        right = model.eval()(test.inputs / 255).argmax(1) == test.labels
    made = sparse.sparsifier
    print(f"{made.steps} steps, sparsity {made.sparsity:.2f}")
    print(f"ever active: {made.itop_rate:.0%}, test accuracy {right.float().mean():.1%}")


if __name__ == "__main__":
    main()
