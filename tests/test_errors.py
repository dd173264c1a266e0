import re
from pathlib import Path

import pytest
import torch
from torch import nn

from freetickets import FreeTicketsError
from freetickets.errors import MissingExtraError, StoppedError, UnknownNameError, is_out_of_memory
from freetickets.methods import MIMO, TreeNet
from freetickets.tasks import CLASSIFICATION
from freetickets.training.ledger import count_macs


def test_every_error_of_ours_is_one_line_and_every_extra_it_names_exists():
    for error, words in (
        (UnknownNameError("model", "mpl", iter(["mlp", "cnn"])), "'mpl': did you mean 'mlp'?"),
        (UnknownNameError("model", "zzz", ["mlp", "cnn"]), "unknown model 'zzz': known: mlp, cnn"),
        (MissingExtraError("--launcher ray", "ray"), "pip install 'freetickets[ray]'"),
        (StoppedError("stopped"), "stopped"),
    ):
        assert isinstance(error, FreeTicketsError)
        assert words in str(error)
        assert "\n" not in str(error)
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 can't read pyproject.toml")
    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    sources = "".join(file.read_text() for file in (root / "src").rglob("*.py"))
    named = set(re.findall(r'MissingExtraError\("[^"]*", "([^"]*)"\)', sources))
    assert named == {"report", "corruptions", "ray"}
    assert named <= set(extras["optional-dependencies"])


@pytest.mark.parametrize(
    "use",
    [
        lambda network: count_macs(network, (4,)),
        lambda network: MIMO(members=2).transform(network)(torch.randn(2, 4)),
        lambda network: TreeNet(members=2).transform(network),
        lambda _: CLASSIFICATION.batch_loss(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)),
    ],
    ids=["flops", "mimo", "treenet", "loss"],
)
def test_a_network_or_a_loss_is_not_blamed_for_a_lack_of_memory(monkeypatch, use):
    def shortage(inputs, *_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", shortage)
    monkeypatch.setattr(nn.Sequential, "forward", shortage)
    with pytest.raises(RuntimeError, match=r"^DefaultCPUAllocator") as caught:
        use(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    assert is_out_of_memory(caught.value)
    assert not isinstance(caught.value, FreeTicketsError)
