"""A task of one's own in one file: regression, by a sparse ensemble.

From Python: `python regression.py`. From the command line, in this folder, after that:

    freetickets train edst --task regression:Regression --dataset waves.npz --model mlp-64-64 \
        --epochs 24 --lr 0.1 --output waves
    freetickets evaluate waves --task regression:Regression
    freetickets report waves
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import mse_loss

import freetickets as ft
from freetickets.tasks import Score, Task


@dataclass(frozen=True)
class Spread:
    """How far the members are apart, (N, outputs)."""

    variance: Any


def rmse(members: Any, targets: Any) -> float:
    """The root of the mean squared error of the members' mean, (M, N, outputs)."""
    return float(np.sqrt(((members.mean(0) - targets.reshape(members.shape[1:])) ** 2).mean()))


def mae(members: Any, targets: Any) -> float:
    """Its mean absolute error."""
    return float(np.abs(members.mean(0) - targets.reshape(members.shape[1:])).mean())


@dataclass(frozen=True)
class Regression(Task):
    """Numbers: networks learn them by their squared error, and members predict their mean."""

    running: ClassVar[Score] = Score("rmse", "RMSE")

    def batch_loss(self, outputs: Tensor, targets: Tensor, training: bool = True) -> Tensor:
        """The mean squared error."""
        return mse_loss(outputs, targets.reshape(outputs.shape))

    def sample_scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The squared error of each sample."""
        return ((outputs - targets.reshape(outputs.shape)) ** 2).flatten(1).mean(1)

    def logged(self, mean: float) -> float:
        """The root of their mean."""
        return mean**0.5

    def guess(self, targets: Tensor, outputs: int) -> float:
        """The squared error of always saying the mean."""
        return float(targets.var(0, correction=0).mean())

    def joined(self, members: Any, rule: str) -> Any:
        """The members' mean."""
        return members.mean(0)

    def uncertainty(self, members: Any, prediction: Any) -> Spread:
        """The members' variance."""
        return Spread(members.var(0))

    def answers(self, prediction: Any, classes: Any) -> Any:
        """The numbers themselves; (N,) where there is one for each sample."""
        return prediction[:, 0] if prediction.shape[1] == 1 else prediction

    @property
    def scores(self) -> tuple[Score, ...]:
        """RMSE, then the mean absolute error."""
        return (
            Score("rmse", "RMSE", function=rmse, name="root mean squared error"),
            Score("mae", "MAE", function=mae, name="mean absolute error"),
        )


def waves(samples: int, seed: int) -> tuple[Any, Any]:
    """Points of a wave in four dimensions, with noise."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (samples, 4)).astype(np.float32)
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.05 * generator.normal(size=samples)
    return x, y.astype(np.float32)


def main() -> None:
    """Trains from Python, and saves the same data for the command line."""
    (x, y), (x_test, y_test) = waves(1200, 0), waves(400, 1)
    np.savez("waves.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    settings = {"task": Regression(), "epochs": 24, "lr": 0.1, "output": "python-waves"}
    ensemble = ft.EDST(tickets=3, sparsity=0.5).fit("mlp-64-64", (x, y), **settings)
    members = ensemble.member_predictions(x_test)  # (M, N, 1): members first
    print(f"RMSE of guessing the mean  {y_test.std():.3f}")
    print(f"RMSE of the members        {[round(rmse(m[None], y_test), 3) for m in members]}")
    print(f"RMSE of the ensemble       {rmse(members, y_test):.3f}")
    near, far = (ensemble.uncertainty(x).variance.mean() for x in (x_test, 5 * x_test))
    print(f"variance, near and far     {near:.4f} {far:.4f}")


if __name__ == "__main__":
    main()
