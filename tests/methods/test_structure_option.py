"""The option `structure` of the sparse methods: trained, priced, and refused in time."""

import pytest
import torch

from freetickets.methods import DST, EDST, LTR, Setting, Static, get_recipe
from freetickets.models import create_model
from freetickets.sparsity.structure import parse_structure
from freetickets.training.ledger import price

from . import small

SETTINGS = {**small.SETTINGS, "epochs": 6}
CIFAR = Setting(get_recipe("cifar"))


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
    masks, others = (ticket.topology for ticket in tickets)
    assert "fc2.weight" in masks
    assert masks.keys() == others.keys()
    for ticket in tickets:
        for name, mask in ticket.topology.items():
            assert parse_structure(structure).check(mask), name
            assert not mask.all()
            assert (ticket.state[name][~mask] == 0).all()
    assert any(not torch.equal(masks[name], others[name]) for name in masks)
    active = sum(
        int(masks[name].sum()) if name in masks else tensor.numel()
        for name, tensor in tickets[0].state.items()
    )
    model = create_model("mlp-16-12", (6,), 3)
    plan = method.plan(CIFAR)
    ledger = price(plan, model, (6,), train_size=60, batch_size=12, steps_per_epoch=5)
    assert ledger.ticket_parameters == active


def test_n_of_m_brings_its_sparsity_and_what_does_not_go_together_is_refused(refused):
    assert DST(structure="2:4") == DST(structure="2:4", sparsity=0.5)
    assert (DST(structure="2:4").sparsity, DST(structure="fan-in").sparsity) == (0.5, 0.8)
    phases = DST(structure="1:4").plan(CIFAR).runs[0].phases
    assert [phase.sparsity for phase in phases] == [0.75]
    refused(r"'2:4' has sparsity 0\.5, not 0\.9", EDST, structure="2:4", sparsity=0.9)
    refused("did you mean 'fan-in'", Static, structure="fan_in")
    for method, match in (
        (LTR(structure="fan-in"), "'fan-in' does not go with gradual pruning"),
        (DST(structure="2:4", explorer="gmp"), "'2:4' does not go with gradual pruning"),
        (DST(structure="2:4", explorer="snfs"), "'2:4' does not go with redistribute='momentum'"),
        (DST(structure="2:4", explorer="top-kast"), "'2:4' does not go with reserve=0.1"),
        (DST(structure="2:4", explorer="dsr"), "'2:4' does not go with prune_scope='threshold'"),
        (EDST(explorer="srigl", criterion="snip"), "'fan-in' starts from a random topology"),
    ):
        refused(match, method.plan, CIFAR)
