"""Sparse training with Hugging Face's Trainer: one callback, which resumes from its checkpoints.

    python examples/hugging_face_callback.py --epochs 5
    python examples/hugging_face_callback.py --epochs 10  # continues where the first one ended

Needs `pip install transformers accelerate`.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import freetickets as ft
from freetickets.models import create_model


class SparseTraining(TrainerCallback):
    """Makes the model sparse and explores its topology.

    The Trainer clips gradients before any callback sees them, so if weights are masked,
    `max_grad_norm` bounds the norm over all of them.

    Args:
        sparsity: The share of zeros.
        **options: Other arguments of the `Sparsifier`; `exclude` the layers that stay dense.
    """

    def __init__(self, sparsity: float = 0.8, **options: Any) -> None:
        self.options = {"sparsity": sparsity, **options}
        self.sparsifier: ft.Sparsifier | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **parts: Any
    ) -> None:
        """Makes the sparsifier: by now, model and optimizer are loaded from any checkpoint."""
        saved = torch.load(_file(args, state), weights_only=True) if state.global_step else None
        options = {**self.options, "topology": saved["topology"]} if saved else self.options
        self.sparsifier = ft.Sparsifier(parts["model"], parts["optimizer"], **options)
        if saved:
            self.sparsifier.load_state_dict(saved)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The second of the two lines."""
        self.sparsifier.step()

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        """Puts the sparsifier's state into the checkpoint's folder."""
        torch.save(self.sparsifier.state_dict(), _file(args, state))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Releases the weights, which stay as they are."""
        self.sparsifier.detach()


def _file(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / "sparsifier.pt"


class Classifier(nn.Module):
    """A model like any other: it knows nothing about sparsity."""

    def __init__(self) -> None:
        super().__init__()
        self.net = create_model("mlp-256-256", (1, 28, 28), 10)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Scores of the ten classes, and the loss if there are labels."""
        scores = self.net(images)
        loss = {} if labels is None else {"loss": nn.functional.cross_entropy(scores, labels)}
        return {**loss, "logits": scores}


class Images(Dataset):
    """The first embedded images, as the Trainer wants them."""

    def __init__(self, part: str, samples: int) -> None:
        split = ft.data.load("fashion-mini", part)
        self.images, self.labels = split.inputs[:samples] / 255, split.labels[:samples]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"images": self.images[index], "labels": self.labels[index]}


def main() -> None:
    """Trains on the embedded images, and prints how sparse and how good the network is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--output", type=Path, default=Path("runs/hugging-face"))
    parsed = parser.parse_args()
    settings = TrainingArguments(
        str(parsed.output), num_train_epochs=parsed.epochs, per_device_train_batch_size=64,
        learning_rate=2e-3, lr_scheduler_type="constant", save_strategy="epoch", use_cpu=True,
        report_to=[], disable_tqdm=True,
    )  # fmt: skip
    sparse, model, test = SparseTraining(0.8), Classifier(), Images("test", 2_000)
    trainer = Trainer(model, settings, train_dataset=Images("train", parsed.samples))
    trainer.add_callback(sparse)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(parsed.output))
    with torch.no_grad():
        right = model.eval()(test.images)["logits"].argmax(1) == test.labels
    made = sparse.sparsifier
    print(f"{made.steps} steps, sparsity {made.sparsity:.2f}")
    print(f"ever active: {made.itop_rate:.0%}, test accuracy {right.float().mean():.1%}")


if __name__ == "__main__":
    main()
