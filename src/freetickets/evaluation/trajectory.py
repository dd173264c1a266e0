"""Trajectories: what a network said of some samples while it trained, and its way in the plane."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError, MissingExtraError
from ..metrics.arrays import Array
from ..predictions import Predictions, trajectory_files
from ..reading import damaged

_FEWEST_FOR_TSNE = 4
_MOST_COMPONENTS = 50
_EXACT_UP_TO = 100  # points; more take the approximation by trees
_SAMPLES_AT_A_TIME = 100
_NO_MOVE = 1e-9  # of probabilities, which are rounded


@dataclass(frozen=True, eq=False)
class TrajectoryPoint:
    """A moment of a training, and what the network said then."""

    run: int  # its number, from 1
    step: int  # in the run
    epoch: float  # the same in epochs
    phase: str
    ticket: int  # number of the one that the phase leads to, over all runs from 1
    collected: bool  # whether the network of this moment became that ticket
    log_probs: npt.NDArray[np.float32]  # of fixed samples, (N, C)
    labels: npt.NDArray[np.int64]  # theirs, (N,)


@dataclass(frozen=True, eq=False)
class Path2D:
    """The way to one ticket, in the plane."""

    label: str  # such as "ticket 2"
    points: Array  # where the checkpoints are, (K, 2), in the order of training
    epochs: Array  # when they were, (K,)
    collected: npt.NDArray[np.bool_]  # which of them is the ticket, (K,)


@dataclass(frozen=True)
class Embedding:
    """Trajectories in one plane."""

    paths: dict[str, list[Path2D]]  # the ways of each run
    method: str  # "t-SNE" or "PCA"
    note: str = ""  # why it is not t-SNE


def read_trajectory(folder: str | Path) -> list[TrajectoryPoint]:
    """Reads what `train --trajectory` stored in a run's folder, in the order of training."""
    files = trajectory_files(Path(folder))
    if not files:
        raise FreeTicketsError(f"no trajectory in {folder}: train it with --trajectory 1")
    saved = [Predictions.load(file) for file in files]
    with damaged(Path(folder) / "trajectory"):
        saved.sort(key=lambda each: (each.info["run"], each.info["step"]))
        # The best of a phase is known at its end only: there it says which moment was taken.
        taken = {(each.info["run"], each.info.get("ticket_step")) for each in saved}
        return [
            TrajectoryPoint(
                **{key: each.info[key] for key in ("run", "step", "epoch", "phase", "ticket")},
                collected=each.info["collected"] or (each.info["run"], each.info["step"]) in taken,
                log_probs=each.outputs[0],
                labels=each.labels,
            )
            for each in saved
        ]


def embed(trajectories: Mapping[str, Sequence[TrajectoryPoint]], seed: int = 0) -> Embedding:
    """Lays trajectories, by the names of their runs, out in one plane: t-SNE of probabilities.

    The same checkpoints and seed give the same plane; only distances between neighbours tell.
    """
    named = [(name, each) for name, trajectory in trajectories.items() for each in trajectory]
    if not named:
        raise FreeTicketsError("there is no checkpoint to lay out")
    checkpoints = [each for _, each in named]
    first, expected = named[0]
    for name, each in named:
        same = each.log_probs.shape == expected.log_probs.shape
        if not same or not np.array_equal(each.labels, expected.labels):
            raise FreeTicketsError(
                f"the trajectories of {first} and {name} are of other samples: lay them out apart"
            )
    components = _principal_components(checkpoints)
    few = len(checkpoints) < _FEWEST_FOR_TSNE
    note = f"principal components: t-SNE needs at least {_FEWEST_FOR_TSNE} checkpoints"
    left = iter(components[:, :2] if few else _tsne(components, seed))
    paths = {name: _paths(trajectory, left) for name, trajectory in trajectories.items()}
    return Embedding(paths, "PCA" if few else "t-SNE", note if few else "")


def _principal_components(checkpoints: Sequence[TrajectoryPoint]) -> Array:
    """The checkpoints' probabilities in their directions of largest spread, (K, 2 or more)."""
    count = len(checkpoints)
    products = np.zeros((count, count))
    # Some samples at a time: all probabilities of all checkpoints may be more than memory holds.
    for first in range(0, len(checkpoints[0].labels), _SAMPLES_AT_A_TIME):
        part = slice(first, first + _SAMPLES_AT_A_TIME)
        rows = np.stack([each.log_probs[part].astype(np.float64).ravel() for each in checkpoints])
        probs = np.exp(rows)
        probs -= probs.mean(axis=0)
        products += probs @ probs.T
    squares, directions = np.linalg.eigh(products)
    kept = min(count, _MOST_COMPONENTS)
    scores: Array = directions[:, ::-1][:, :kept] * np.sqrt(squares[::-1][:kept].clip(min=0))
    # A direction may point either way: its farthest checkpoint is on the positive side.
    scores *= np.where(scores[np.abs(scores).argmax(axis=0), range(kept)] < 0, -1.0, 1.0)
    return np.pad(scores, ((0, 0), (0, max(0, 2 - kept))))


def _tsne(components: Array, seed: int) -> Array:
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise MissingExtraError("t-SNE", "report") from error
    count = len(components)
    spread = components[:, 0].std()
    if spread < _NO_MOVE:
        return np.zeros((count, 2))
    tsne = TSNE(
        perplexity=min(30.0, (count - 1) / 3),
        init=(components[:, :2] / spread * 1e-4).astype(np.float32),
        learning_rate="auto",
        method="exact" if count <= _EXACT_UP_TO else "barnes_hut",
        random_state=seed,
    )
    # Sums depend on the number of threads, and t-SNE turns the last bit into another picture.
    with threadpool_limits(1):
        return tsne.fit_transform(components).astype(np.float64)


def _paths(trajectory: Sequence[TrajectoryPoint], places: Iterator[Array]) -> list[Path2D]:
    ways = [list(way) for _, way in groupby(trajectory, lambda each: (each.run, each.ticket))]
    tickets = Counter(way[0].ticket for way in ways)
    found = []
    for way in ways:
        label = f"ticket {way[0].ticket}"
        if tickets[way[0].ticket] > 1:
            label = f"run {way[0].run}, {label}"
        points, epochs = [next(places) for _ in way], [each.epoch for each in way]
        collected = [each.collected for each in way]
        found.append(Path2D(label, np.array(points), np.array(epochs, float), np.array(collected)))
    return found
