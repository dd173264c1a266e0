"""A run's folder says which ways its layers took, and a resumed run keeps them."""

from typing import Any

import pytest
import torch

import freetickets as ft
from freetickets.errors import DamagedFileError
from freetickets.kernels import library
from freetickets.kernels.layers import SparseConv2d
from freetickets.methods import Method
from freetickets.training.folder import read_choices
from freetickets.training.progress import Reporter
from freetickets.training.session import Session

pytestmark = pytest.mark.skipif(not library.available(), reason="the kernels are not built")

# Wide enough for Winograd's way, where a layer is dense; 4 steps an epoch.
SETTINGS: dict[str, Any] = {"batch_size": 16, "epochs": 2, "quiet": True, "validation": 0.2}
MODEL = "cnn-16"
METHODS: dict[str, Method] = {
    "edst": ft.EDST(tickets=2, interval=2, sparsity=0.6),
    "dense": ft.Dense(),
    "pf": ft.PruneFineTune(tickets=1, sparsity=0.8),
    "ensemble": ft.DenseEnsemble(tickets=2),
}


@pytest.fixture(scope="module")
def images():
    """Eighty images of four classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 4
    return torch.randn(80, 3, 16, 16, generator=generator) + labels.view(-1, 1, 1, 1), labels


def told(folder):
    """What a folder says, but for whose it is."""
    found = read_choices(folder)
    assert found.pop("settings")
    return found


@pytest.mark.parametrize("method", METHODS)
def test_killed_and_resumed_it_took_the_same_ways(images, tmp_path, digests, killed_at, method):
    def train(name):
        METHODS[method].fit(MODEL, images, output=tmp_path / name, checkpoint_seconds=0, **SETTINGS)

    train("whole")
    lives = (3, 4, 5, 6) if method == "ensemble" else (3, 4)  # two networks, or one
    killed_at(lambda: train("resumed"), *lives)
    train("resumed")
    assert digests(tmp_path / "resumed" / "tickets") == digests(tmp_path / "whole" / "tickets")
    assert told(tmp_path / "resumed") == told(tmp_path / "whole")
    found = told(tmp_path / "whole")
    assert (found["kernels"], found["costs"]) == ([library.instruction_set()], "shipped")
    assert any("1 to 16 samples" in key for key in found["ways"])


def test_a_dense_run_says_where_winograds_way_was_taken_and_keeps_that_without_it(
    images, tmp_path, digests, killed_at, monkeypatch
):
    """The option counts for new runs: one that is resumed keeps its folder's."""

    def train(name):
        ft.Dense().fit("cnn-32", images, output=tmp_path / name, checkpoint_seconds=0, **SETTINGS)
        return told(tmp_path / name)

    whole = train("whole")
    assert whole["winograd"] is True
    assert "Winograd / Winograd / Winograd" in whole["ways"].values()
    killed_at(lambda: train("resumed"), 3)
    monkeypatch.setenv("FREETICKETS_WINOGRAD", "0")
    assert train("resumed") == whole
    assert digests(tmp_path / "resumed" / "tickets") == digests(tmp_path / "whole" / "tickets")
    without = train("without")
    assert without["winograd"] is False
    assert not any("Winograd" in words for words in without["ways"].values())
    assert digests(tmp_path / "without" / "tickets") != digests(tmp_path / "whole" / "tickets")


def test_another_machine_keeps_the_ways(images, tmp_path, killed_at, other_kernels, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(Reporter, "warn", lambda self, line: lines.append(line))

    def train():
        METHODS["edst"].fit(MODEL, images, output=tmp_path, checkpoint_seconds=0, **SETTINGS)

    other_kernels("baseline")
    killed_at(train, 6)
    before = told(tmp_path)
    other_kernels("avx2")
    train()
    after = told(tmp_path)
    assert after["kernels"] == ["baseline", "avx2"]
    assert after["ways"].items() >= before["ways"].items()
    assert {**after, "kernels": 0, "ways": 0} == {**before, "kernels": 0, "ways": 0}
    (line,) = [line for line in lines if "explores" not in line]
    assert "has used the baseline kernels so far and goes on with the avx2 ones" in line


def test_a_network_that_is_pruned_skips_its_zeros_at_once(images, monkeypatch):
    """Not only after a resume, which would change its bits."""
    found: list[int] = []
    prune = Session.prune

    def noted(self, *arguments):
        prune(self, *arguments)
        found.append(sum(isinstance(m, SparseConv2d) for m in self.network.modules()))

    monkeypatch.setattr(Session, "prune", noted)
    METHODS["pf"].fit("cnn-32", images, **SETTINGS)
    assert min(found) > 0


def test_masked_runs_have_no_kernels_and_folders_may_say_nothing(images, tmp_path):
    METHODS["edst"].fit(MODEL, images, output=tmp_path, backend="masked", **SETTINGS)
    assert told(tmp_path) == {"kernels": [], "ways": {}}
    assert read_choices(tmp_path / "nothing") == {}
    path = tmp_path / "choices.json"
    path.write_text(path.read_text().replace("[]", '["avx2"]'))
    with pytest.raises(DamagedFileError, match="checksum"):
        read_choices(tmp_path)
