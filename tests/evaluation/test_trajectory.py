import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from freetickets.errors import MissingExtraError
from freetickets.evaluation import Predictions
from freetickets.evaluation.trajectory import TrajectoryPoint, embed, read_trajectory
from freetickets.predictions import trajectory_file

LABELS = np.arange(20) % 3


def walk(count, seed=0, run=1, ticket=1, samples=20):
    """A network that goes straight from one prediction to another, and wavers."""
    rng = np.random.default_rng(seed)
    start, end = rng.normal(size=(2, samples, 3)) * 3
    found = []
    for number in range(count):
        share = number / max(1, count - 1)
        logits = start * (1 - share) + end * share + 0.1 * rng.normal(size=(samples, 3))
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        moment = run, 10 * number + 10, number + 1.0, "train", ticket, number == count - 1
        labels = np.arange(samples) % 3
        found.append(TrajectoryPoint(*moment, log_probs.astype(np.float32), labels))
    return found


def store(folder, point, **more):
    info = {
        "kind": "trajectory", "dataset": "toy", "combine": "probabilities",
        "run": point.run, "step": point.step, "epoch": point.epoch, "phase": point.phase,
        "ticket": point.ticket, "collected": point.collected, **more
    }  # fmt: skip
    path = trajectory_file(folder, point.run, point.step)
    Predictions(point.log_probs[None], point.labels, info).save(path)


# ---- reading


def test_checkpoints_come_back_in_the_order_of_training(tmp_path):
    written = [*walk(12), *walk(3, seed=1, run=2, ticket=2), *walk(2, seed=2, run=11, ticket=3)]
    for place in np.random.default_rng(0).permutation(len(written)):
        store(tmp_path, written[place])
    found = read_trajectory(tmp_path)
    assert [(each.run, each.step) for each in found] == [(e.run, e.step) for e in written]
    for a, b in zip(found, written, strict=True):
        assert np.array_equal(a.log_probs, b.log_probs)
        told = [(e.epoch, e.phase, e.ticket, e.collected) for e in (a, b)]
        assert told[0] == told[1]
        assert np.array_equal(a.labels, LABELS)


def test_the_moment_that_was_taken_as_a_ticket_later_is_marked(tmp_path):
    points = walk(5)[:4]  # none of these says of itself that it was collected
    for point in points:
        store(tmp_path, point, ticket_step=20 if point.step == 40 else None)
    assert [each.collected for each in read_trajectory(tmp_path)] == [False, True, False, False]


def test_no_trajectory_is_one_line_and_so_is_a_lack_of_scikit_learn(refused, tmp_path, monkeypatch):
    refused("train it with --trajectory 1", read_trajectory, tmp_path)
    logs = np.log(np.full((1, 2, 2), 0.5, dtype=np.float32))
    info = {"kind": "trajectory", "dataset": "toy", "combine": "probabilities", "run": 1, "step": 1}
    Predictions(logs, np.array([0, 1]), info).save(tmp_path / "trajectory" / "1-1.npz")
    refused("does not say its epoch", read_trajectory, tmp_path)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    assert embed({"run": walk(3)}).method == "PCA"
    with pytest.raises(MissingExtraError, match=r"freetickets\[report\]"):
        embed({"run": walk(4)})


# ---- laying out


def test_there_is_a_path_to_each_ticket_with_its_epochs():
    edst = [*walk(6), *walk(4, seed=1, ticket=2)]
    dst = [*walk(3, seed=2), *walk(5, seed=3, run=2, ticket=2)]
    found = embed({"edst": edst, "dst": dst})
    assert (found.method, found.note) == ("t-SNE", "")
    assert list(found.paths) == ["edst", "dst"]
    for name, lengths in (("edst", (6, 4)), ("dst", (3, 5))):
        for number, (path, length) in enumerate(zip(found.paths[name], lengths, strict=True)):
            assert path.label == f"ticket {number + 1}"
            assert path.points.shape == (length, 2)
            assert np.isfinite(path.points).all()
            assert path.epochs.tolist() == list(range(1, length + 1))
            assert path.collected.tolist() == [False] * (length - 1) + [True]
    # Two runs on the way to one ticket are told apart.
    paths = embed({"ltr": [*walk(3), *walk(3, seed=1, run=2)]}).paths["ltr"]
    assert [path.label for path in paths] == ["run 1, ticket 1", "run 2, ticket 1"]


@pytest.mark.parametrize("samples", [1, 230])
@pytest.mark.parametrize("count", [4, 60], ids=["exact", "by-trees"])
def test_the_same_checkpoints_and_seed_give_the_same_plane(count, samples):
    trajectories = {"a": walk(count, 0, samples=samples), "b": walk(count, 1, samples=samples)}
    first, again = embed(trajectories, seed=3), embed(trajectories, seed=3)
    for name in trajectories:
        for a, b in zip(first.paths[name], again.paths[name], strict=True):
            assert np.array_equal(a.points, b.points)
            assert np.isfinite(a.points).all()


def test_each_checkpoint_is_next_to_one_of_its_own_way():
    trajectories = {name: walk(15, seed) for seed, name in enumerate("abc")}
    found = embed(trajectories)
    points = np.concatenate([path.points for paths in found.paths.values() for path in paths])
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    owner = np.repeat(np.arange(3), 15)
    assert (owner[distances.argmin(1)] == owner).mean() > 0.95


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_checkpoints_are_laid_out_by_principal_components(count):
    points = walk(count)
    found = embed({"run": points})
    assert found.method == "PCA"
    assert "at least 4" in found.note
    probs = np.exp([each.log_probs.astype(np.float64).ravel() for each in points])
    (path,) = found.paths["run"]
    if count > 1:
        expected = PCA(min(2, count - 1)).fit_transform(probs)
        width = expected.shape[1]
        np.testing.assert_allclose(np.abs(path.points[:, :width]), np.abs(expected), atol=1e-6)
        np.testing.assert_allclose(path.points[:, width:], 0, atol=1e-6)
    else:
        assert path.points.tolist() == [[0, 0]]


def test_neither_standing_still_nor_a_ruled_out_class_is_an_obstacle_but_other_samples_are(refused):
    (path,) = embed({"run": walk(1) * 6}).paths["run"]
    assert np.ptp(path.points, axis=0).tolist() == [0, 0]
    points = walk(5)
    for point in points:
        point.log_probs[:, 2] = -np.inf
    (path,) = embed({"run": points}).paths["run"]
    assert np.isfinite(path.points).all()
    refused("of a and b are of other samples", embed, {"a": walk(3), "b": walk(3, samples=21)})
    refused("no checkpoint", embed, {})
