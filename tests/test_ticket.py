from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from freetickets import Sparsifier, Ticket
from freetickets.errors import DamagedFileError
from freetickets.storage import save_tree


def make_network(widths=(30, 40, 10)):
    torch.manual_seed(0)
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*layers, nn.BatchNorm1d(widths[-1]))


def make_ticket(sparsity=0.8, widths=(30, 40, 10)):
    network = make_network(widths)
    sparsifier = Sparsifier(network, torch.optim.SGD(network.parameters()), sparsity)
    return Ticket.of(network.state_dict(), sparsifier.topology, {"model": "mine", "step": 3})


class Tied(nn.Module):
    """Two layers that share a weight, and a square weight with its transpose beside it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("turned", self.first.weight.detach().t())


def test_a_ticket_is_a_copy_as_large_as_its_active_weights_and_bits(tmp_path):
    network = make_network()
    mask = torch.ones(40, 30, dtype=torch.bool)
    ticket = Ticket.of(network.state_dict(), {"0.weight": mask}, {})
    mask.zero_()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert ticket.topology["0.weight"].all()
    assert ticket.state["0.weight"].abs().sum() > 0
    ticket = make_ticket(0.9, (300, 400, 10))
    ticket.save(tmp_path / "sparse")
    places = sum(mask.numel() for mask in ticket.topology.values())
    active = sum(int(mask.sum()) for mask in ticket.topology.values())
    dense = sum(t.nbytes for name, t in ticket.state.items() if name not in ticket.topology)
    header = (tmp_path / "sparse").stat().st_size - (4 * active + places / 8 + dense)
    assert 0 < header < 4000
    nonzeros = sum(int((t != 0).sum()) for t in ticket.state.values() if t.ndim == 2)
    assert nonzeros == pytest.approx(0.1 * 124_000, rel=0.01)


def test_a_tied_weight_is_stored_once_and_stays_tied(tmp_path, same):
    network = Tied()
    state: dict[str, Tensor] = network.state_dict()
    taken = Ticket.of(state, {}, {}).state
    assert torch.equal(taken["turned"], network.first.weight.t())  # a view is no tied weight
    sparsifier = Sparsifier(network, torch.optim.SGD(network.parameters()), 0.5)
    state = {name: t.clone() if name == "turned" else t for name, t in network.state_dict().items()}
    ticket = Ticket.of(state, sparsifier.topology, {})
    ticket.save(tmp_path / "t")
    loaded = Ticket.load(tmp_path / "t")
    assert same(vars(loaded), vars(ticket))
    assert loaded.state["first.weight"] is loaded.state["second.weight"]
    packed = ticket.pack()
    assert packed["same"] == {"second.weight": "first.weight"}
    assert "second.weight" not in packed["dense"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("shape", value) for value in ([40, 31], [1 << 62, 4], [-40, -30], [0], ["8"], [-8])),
        *(("values", torch.ones(3)), ("sparse", []), ("order", ["missing"])),
        ("same", {"x": "missing"}),
        *(("number", value) for value in (0, 1.5)),
        *(("method", 7), ("options", [1]), ("classes", [1, 2]), ("input_shape", [3, -1])),
        *(("mean", [0.5]), ("std", [0.0]), ("step", -1), ("settings", 3), ("epoch", "1")),
    ],
)
def test_a_ticket_forged_with_a_right_checksum_is_damaged(refused, tmp_path, key, value):
    tree = make_ticket().pack()
    layer = tree["sparse"]["0.weight"]
    next((each for each in (tree, layer) if key in each), tree["info"])[key] = value
    save_tree(tmp_path / "t", tree, "freetickets-ticket")
    assert isinstance(refused(r"t is damaged \(", Ticket.load, tmp_path / "t"), DamagedFileError)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile
@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile], ids=["parallel", "compile"])
def test_a_wrapped_network_is_stored_under_its_own_names(refused, wrap, same):
    network, mask = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), torch.rand(3, 4) > 0.5
    ticket = Ticket.of(wrap(network).state_dict(), {"0.weight": mask}, {})
    assert same(ticket.state, dict(network.state_dict()))
    words = r"a layer '9\.weight' that the state lacks"
    refused(words, Ticket.of, network.state_dict(), {"9.weight": mask}, {})


def of_type(dtype):
    mask = torch.rand(9, 7) < 0.3
    return Ticket({"w": torch.randn(9, 7).to(dtype).masked_fill(~mask, 0)}, {"w": mask})


@pytest.mark.parametrize(
    "make",
    [
        make_ticket,
        lambda: Ticket.of(make_network().state_dict(), {}, {}),
        *(partial(of_type, t) for t in (torch.bfloat16, torch.float16, torch.float64)),
    ],
)
def test_a_ticket_comes_back_exactly_and_saved_again_is_the_same_file(tmp_path, same, make):
    ticket = make()
    ticket.save(tmp_path / "a")
    loaded = Ticket.load(tmp_path / "a")
    assert same(vars(loaded), vars(ticket))
    loaded.save(str(tmp_path / "b"))
    assert same(vars(Ticket.load(str(tmp_path / "b"))), vars(ticket))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
