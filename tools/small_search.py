"""Try a network and its training for the small scale of `reproduce`, on training images only.

The first N training images of CIFAR-10 are trained on, the last 10,000 stand for the test set, both
pooled to 16x16. One dense network and then an EDST ensemble (M=3, S=0.8), or whatever methods are
named, are trained and scored:

    python tools/small_search.py --data-dir DIR --images 4000 mlp-1024-1024 100 \
        --batch-size 64 --lr 0.07 --interval 100
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from freetickets.cli import main as freetickets
from freetickets.data import Split, load
from freetickets.experiments.substitutes import pool
from freetickets.methods import Setting, get_method, get_recipe

HELD_OUT = 10_000


def main() -> None:
    """Make the data, train the methods on it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("epochs", type=float, help="of the dense training")
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--interval", default="100", help="steps between explorations")
    parser.add_argument("--methods", nargs="+", default=["dense", "edst"])
    parser.add_argument("--data-dir")
    args, options = parser.parse_known_args()
    recipe = get_recipe("cifar")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"cifar10-{args.images}.npz"
        save_part(path, args.images, args.data_dir)
        shared = ["--dataset", str(path), "--model", args.model, "--recipe", "cifar"]
        shared += ["--augmentation", "reflect-crop-flip", *options, "--output"]
        for name in args.methods:
            method = get_method(name)()
            longer = method.plan(Setting(recipe)).runs[0].epochs / recipe.dense_epochs
            own = ["--epochs", f"{longer * args.epochs:g}"]
            own += ["--interval", args.interval] if hasattr(method, "interval") else []
            freetickets(["train", name, *own, *shared, str(Path(folder) / name)])


def save_part(path: Path, images: int, data_dir: str | None) -> None:
    """Write the first images for training and the last ones for scoring."""
    whole = load("cifar10", "train", data_dir)
    assert isinstance(whole, Split)
    x, y = pool(whole.inputs.numpy(), 2), whole.labels.numpy()
    first, last = slice(images), slice(-HELD_OUT, None)
    np.savez(path, x_train=x[first], y_train=y[first], x_test=x[last], y_test=y[last])


if __name__ == "__main__":
    main()
