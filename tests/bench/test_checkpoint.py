"""What is saved is what a run would save, and the arithmetic of its price."""

import pytest
import torch

from freetickets import EDST
from freetickets.bench import checkpoint
from freetickets.bench.timing import Ratio, Settings, Timing
from freetickets.training.folder import Checkpoints


def test_the_price_is_that_of_all_saves_of_an_epoch(tiny, monkeypatch):
    row, line = checkpoint.overhead(tiny)
    assert isinstance(row, Ratio)
    assert row.value > 0
    assert "checkpoints every 60 s" in row.name
    assert "an epoch of 25000 steps" in str(line)
    times = {"save": Timing(0.3, 0.1), "step": Timing(1.2, 1.0)}
    monkeypatch.setattr(checkpoint, "interleave", lambda sides, repeats: sides["save"]() or times)
    settings = Settings(repeats=1, threads=1, batch=128, small=True)
    row, line = checkpoint.overhead(settings)
    assert isinstance(row, Ratio)
    epoch = 391 * 1.2  # steps of 128 of 50,000 images
    assert row.seconds == pytest.approx({"saves": epoch / 60 * 0.3, "steps": epoch})
    assert row.value == pytest.approx(0.3 / 60)
    assert row.best == pytest.approx(0.1 / 60)
    assert (row.bar, row.repeats) == (0.02, 1)
    assert "an epoch of 391 steps, 1.2 s each, takes 469.2 s and has 7.82 saves" in str(line)


def test_a_checkpoint_holds_what_one_of_a_run_does(tmp_path):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (40, 3, 32, 32), generator=generator, dtype=torch.uint8)
    settings = {"batch_size": 8, "epochs": 2, "preset": "paper", "backend": "masked"}
    settings |= {"checkpoint_seconds": 0, "validation": 0.2, "quiet": True, "output": tmp_path}
    EDST(tickets=1, interval=2).fit("wrn-10-1", (images, torch.arange(40) % 10), **settings)
    # The newest is of the end, where no network is left; the one before it is of the last phase.
    max((tmp_path / "checkpoint").iterdir()).unlink()
    real = Checkpoints(tmp_path / "checkpoint", pytest.fail).load()
    made = checkpoint.Training("wrn-10-1", 2).tree()
    assert real is not None
    assert made.keys() == real.keys()
    assert made["state"].keys() == real["state"].keys()
    assert made["state"]["best"] is not None
    for part in ("network", "sparsifier"):
        assert made["session"][part].keys() == real["session"][part].keys()
    ours, theirs = (tree["session"]["optimizer"]["state"] for tree in (made, real))
    assert len(ours) == len(theirs) > 0
    for key, state in theirs.items():
        assert ours[key]["momentum_buffer"].shape == state["momentum_buffer"].shape
