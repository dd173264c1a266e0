import random
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from freetickets import Sparsifier, Ticket
from freetickets.errors import DamagedFileError, FreeTicketsError
from freetickets.storage import save_tree


def make_network(widths=(30, 40, 10)):
    torch.manual_seed(0)
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*layers, nn.BatchNorm1d(widths[-1]))


def make_ticket(sparsity=0.8, widths=(30, 40, 10)):
    network = make_network(widths)
    sparsifier = Sparsifier(network, torch.optim.SGD(network.parameters()), sparsity)
    return Ticket.of(network.state_dict(), sparsifier.topology, {"model": "mine", "step": 3})


def same_ticket(same, a, b):
    return same([a.state, a.topology, a.info], [b.state, b.topology, b.info])


class Tied(nn.Module):
    """Two layers that share a weight, and a square weight with its transpose beside it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("turned", self.first.weight.detach().t())


@pytest.mark.parametrize("sparsity", [0.8, 0.95])
def test_a_ticket_is_as_large_as_its_active_weights_and_a_bit_for_each_place(tmp_path, sparsity):
    ticket = make_ticket(sparsity, (300, 400, 10))
    ticket.save(tmp_path / "sparse")
    places = sum(mask.numel() for mask in ticket.topology.values())
    active = sum(int(mask.sum()) for mask in ticket.topology.values())
    dense = sum(
        t.numel() * t.element_size() for n, t in ticket.state.items() if n not in ticket.topology
    )
    header = (tmp_path / "sparse").stat().st_size - (4 * active + places / 8 + dense)
    assert 0 < header < 4000
    nonzeros = sum(int((t != 0).sum()) for t in ticket.state.values() if t.ndim == 2)
    assert nonzeros == pytest.approx((1 - sparsity) * 124_000, rel=0.01)


def test_taking_a_ticket_copies_the_network():
    network = make_network()
    mask = torch.ones(40, 30, dtype=torch.bool)
    ticket = Ticket.of(network.state_dict(), {"0.weight": mask}, {})
    mask.zero_()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert ticket.topology["0.weight"].all()
    assert ticket.state["0.weight"].abs().sum() > 0


def test_a_tied_weight_is_stored_once_and_stays_tied(tmp_path, same):
    network = Tied()
    sparsifier = Sparsifier(network, torch.optim.SGD(network.parameters()), 0.5)
    state = {name: t.clone() if name == "turned" else t for name, t in network.state_dict().items()}
    ticket = Ticket.of(state, sparsifier.topology, {})
    ticket.save(tmp_path / "t")
    loaded = Ticket.load(tmp_path / "t")
    assert same_ticket(same, loaded, ticket)
    assert loaded.state["first.weight"] is loaded.state["second.weight"]
    packed = ticket.pack()
    assert packed["same"] == {"second.weight": "first.weight"}
    assert "second.weight" not in packed["dense"]


def test_two_views_of_the_same_memory_are_not_taken_for_one_weight():
    network = Tied()
    state: dict[str, Tensor] = network.state_dict()
    assert state["turned"].data_ptr() == state["first.weight"].data_ptr()
    ticket = Ticket.of(state, {}, {})
    assert torch.equal(ticket.state["turned"], network.first.weight.t())
    assert torch.equal(ticket.state["first.weight"], network.first.weight)


def test_a_ticket_with_a_flipped_bit_or_a_cut_is_damaged(tmp_path):
    make_ticket().save(tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    draw = random.Random(1)
    for place in draw.sample(range(len(data)), 60):
        flipped = bytearray(data)
        flipped[place] ^= 1 << draw.randrange(8)
        for content in (bytes(flipped), data[:place]):
            (tmp_path / "bad").write_bytes(content)
            with pytest.raises(DamagedFileError, match="bad"):
                Ticket.load(tmp_path / "bad")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("shape", value) for value in ([40, 31], [10**8, 10**8], [-40, -30])),
        ("values", torch.ones(3)),
        ("sparse", []),
        ("order", ["0.weight", "missing"]),
        ("same", {"x": "missing"}),
    ],
)
def test_a_ticket_forged_with_a_right_checksum_is_damaged(tmp_path, key, value):
    tree = make_ticket().pack()
    (tree if key in tree else tree["sparse"]["0.weight"])[key] = value
    save_tree(tmp_path / "t", tree, "freetickets-ticket")
    with pytest.raises(DamagedFileError, match="damaged"):
        Ticket.load(tmp_path / "t")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("number", value) for value in ("1", 0, 1.5, [1], 10**20)),
        *(("tickets", "three"), ("method", 7), ("options", [1]), ("classes", "abc")),
        *(("classes", [1, 2]), ("input_shape", [3, -1]), ("mean", [0.5, float("inf")])),
        *(("std", [0.0]), ("step", -1), ("validation_loss", "low")),
    ],
)
def test_what_a_ticket_says_of_itself_is_of_its_type_or_damage(tmp_path, name, value):
    tree = make_ticket().pack()
    tree["info"][name] = value
    save_tree(tmp_path / "t", tree, "freetickets-ticket")
    with pytest.raises(DamagedFileError, match=rf"t is damaged \({name}") as error:
        Ticket.load(tmp_path / "t")
    assert "\n" not in str(error.value)


def test_a_checkpoint_is_no_ticket(tmp_path):
    save_tree(tmp_path / "t", {}, "freetickets-checkpoint")
    with pytest.raises(FreeTicketsError, match="is a freetickets-checkpoint, not a"):
        Ticket.load(tmp_path / "t")


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile
@pytest.mark.parametrize(
    "wrap", [torch.nn.DataParallel, torch.compile], ids=["parallel", "compile"]
)
def test_a_wrapped_network_is_stored_under_its_own_names(wrap, tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    mask = torch.rand(3, 4) > 0.5
    with torch.no_grad():
        network[0].weight *= mask
    ticket = Ticket.of(wrap(network).state_dict(), {"0.weight": mask}, {})
    ticket.save(tmp_path / "ticket")
    found = Ticket.load(tmp_path / "ticket")
    assert found.state.keys() == network.state_dict().keys()
    assert torch.equal(found.state["0.weight"], network[0].weight)
    with pytest.raises(FreeTicketsError, match=r"a layer '9\.weight' that the state lacks"):
        Ticket.of(network.state_dict(), {"9.weight": mask}, {})


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
    assert same_ticket(same, loaded, ticket)
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_equal_tickets_are_equal_files_and_others_are_not(tmp_path):
    files = []
    for sparsity in (0.8, 0.8, 0.81):
        make_ticket(sparsity).save(tmp_path / "t")
        files.append((tmp_path / "t").read_bytes())
    assert files[0] == files[1] != files[2]
    assert set(make_ticket().topology) == {"0.weight", "1.weight"}
