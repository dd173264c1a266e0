"""The option `structure` of the sparse methods: trained, resumed, priced, and refused in time."""

import json

import numpy as np
import pytest
import torch

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.methods import DST, EDST, LTR, Setting, Static, get_recipe
from freetickets.models import create_model
from freetickets.sparsity.structure import parse_structure
from freetickets.training.ledger import price

from . import small

SETTINGS = {**small.SETTINGS, "epochs": 6}
CIFAR = Setting(get_recipe("cifar"))


@pytest.fixture
def data(request, features):
    """Features, or dark pictures with one bright third, as a network takes them."""
    if request.getfixturevalue("model").startswith("mlp"):
        return features
    labels = np.arange(60) % 3
    pixels = np.random.default_rng(0).integers(0, 60, (60, 3, 9, 9), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        image[:, 3 * label : 3 * label + 3] += 120
    return pixels, labels


def check_tickets(tickets, structure, layers):
    for ticket in tickets:
        assert ticket.topology.keys() == layers
        for name, mask in ticket.topology.items():
            assert parse_structure(structure).check(mask), name
            assert not mask.all()
            assert (ticket.state[name][~mask] == 0).all()
    first, second = (ticket.topology for ticket in tickets[:2])
    assert any(not torch.equal(first[name], second[name]) for name in layers)


@pytest.mark.parametrize(
    ("model", "options", "layers"),
    [
        ("mlp-16-12", {"epochs": 12}, ["fc2", "fc"]),  # fc1 has six inputs
        ("cnn-8", {"augmentation": "none"}, ["stage2.conv", "stage3.conv", "fc"]),  # not the first
    ],
)
def test_two_of_four_trains_a_network(model, options, layers, data):
    x, y = data
    method = DST(tickets=2, structure="2:4", interval=2)
    ensemble = method.fit(model, (x, y), **{**SETTINGS, **options})
    check_tickets(ensemble.tickets, "2:4", {f"{layer}.weight" for layer in layers})
    assert np.mean(ensemble.predict(x) == np.asarray(y)) > 0.8


@pytest.mark.parametrize(
    ("method", "structure"),
    [
        (EDST(tickets=2, explorer="srigl", interval=2, sparsity=0.6), "fan-in"),
        (EDST(tickets=2, structure="block-2x2", interval=2, sparsity=0.6), "block-2x2"),
        (EDST(tickets=2, structure="1:4", explorer="set", interval=2), "1:4"),
        (EDST(tickets=2, structure="2:4", explorer="srigl", interval=2), "2:4"),
        (Static(tickets=2, structure="fan-in", sparsity=0.6), "fan-in"),
    ],
)
def test_every_ticket_has_the_structure_and_the_weights_of_the_ledger(method, structure, features):
    tickets = method.fit("mlp-16-12", features, **SETTINGS).tickets
    masks = tickets[0].topology
    assert "fc2.weight" in masks
    check_tickets(tickets, structure, set(masks))
    active = sum(
        int(masks[name].sum()) if name in masks else tensor.numel()
        for name, tensor in tickets[0].state.items()
    )
    model = create_model("mlp-16-12", (6,), 3)
    plan = method.plan(CIFAR)
    ledger = price(plan, model, (6,), train_size=60, batch_size=12, steps_per_epoch=5)
    assert ledger.ticket_parameters == active


@pytest.mark.parametrize("model", ["mlp-8-8", "cnn-4"])
def test_killed_again_and_again_it_ends_the_same(model, data, same_if_killed):
    method = DST(tickets=2, structure="2:4", interval=2)
    settings = {**SETTINGS, "checkpoint_seconds": 0}
    assert same_if_killed(7, lambda to: method.fit(model, data, output=to, **settings))


def test_n_of_m_brings_its_own_sparsity():
    assert DST(structure="2:4") == DST(structure="2:4", sparsity=0.5)
    assert (DST(structure="2:4").sparsity, DST(structure="fan-in").sparsity) == (0.5, 0.8)
    phases = DST(structure="1:4").plan(CIFAR).runs[0].phases
    assert [phase.sparsity for phase in phases] == [0.75]
    with pytest.raises(FreeTicketsError, match=r"'2:4' has sparsity 0\.5, not 0\.9"):
        EDST(structure="2:4", sparsity=0.9)
    with pytest.raises(UnknownNameError, match="did you mean 'fan-in'"):
        Static(structure="fan_in")


@pytest.mark.parametrize(
    ("method", "match"),
    [
        (LTR(structure="fan-in"), "'fan-in' does not go with gradual pruning"),
        (DST(structure="2:4", explorer="gmp"), "'2:4' does not go with gradual pruning"),
        (DST(structure="2:4", explorer="snfs"), "'2:4' does not go with redistribute='momentum'"),
        (DST(structure="2:4", explorer="top-kast"), "'2:4' does not go with reserve=0.1"),
        (DST(structure="2:4", explorer="dsr"), "'2:4' does not go with prune_scope='threshold'"),
        (EDST(explorer="srigl", criterion="snip"), "'fan-in' starts from a random topology"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_training(method, match):
    with pytest.raises(FreeTicketsError, match=match) as error:
        method.plan(CIFAR)
    assert "\n" not in str(error.value)


def test_the_command_line_has_the_flag(cli):
    answer = cli("plan", "dst", "--structure", "2:4", "--model", "mlp-32", "--json")
    assert json.loads(answer.out)["plan"]["sparse"]["structure"] == "2:4"
    refused = cli("plan", "dst", "--structure", "2:4", "--sparsity", "0.9")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
