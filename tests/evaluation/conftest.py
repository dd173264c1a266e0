import shutil

import numpy as np
import pytest

import freetickets as ft
from freetickets.evaluation import Predictions

SMALL = {"batch_size": 16, "epochs": 3, "quiet": True}


@pytest.fixture(scope="session")
def _run(images_npz, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "dst"
    method = ft.DST(tickets=2, interval=3)
    method.fit("mlp-8", str(images_npz), output=folder, backend="masked", **SMALL)
    return folder


@pytest.fixture
def run_folder(_run, tmp_path):
    """A finished run of two tickets that a test may do to what it likes."""
    folder = tmp_path / "dst"
    shutil.copytree(_run, folder)
    return folder


@pytest.fixture(scope="session")
def test_set(images_npz):
    """The samples that it is tested on."""
    return ft.data.load(images_npz, "test")


@pytest.fixture
def invent():
    """Makes up predictions of three members and four classes."""

    def make(seed, count=40, labels=None, **info):
        rng = np.random.default_rng(seed)
        logs = np.log(rng.dirichlet(np.ones(4), size=(3, count))).astype(np.float32)
        truth = rng.integers(0, 4, count) if labels is None else np.asarray(labels)
        told = {"dataset": "toy", "combine": "probabilities", "tickets": None, **info}
        return Predictions(logs, truth, told)

    return make
