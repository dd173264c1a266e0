import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from freetickets.errors import UnknownNameError
from freetickets.sparsity import Sparsifier, select_weights

from .training import Run, mlp


def names(model, **options):
    return list(select_weights(model, **options))


CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
PLACES = ("l0", "l0_reverse", "l1", "l1_reverse")
RECURRENT = [f"weight_{part}_{place}" for place in PLACES for part in ("ih", "hh")]
OUTPUT = "out_proj.weight"


def test_all_matrices_of_a_layer_are_found_and_no_bias():
    for module, expected in (
        (nn.Linear(4, 3), ["weight"]),
        *((kind(4, 3, 3), ["weight"]) for kind in CONVOLUTIONS),
        *((kind(4, 5, 2, bidirectional=True), RECURRENT) for kind in (nn.LSTM, nn.GRU, nn.RNN)),
        (nn.LSTM(4, 5, proj_size=3), ["weight_ih_l0", "weight_hh_l0", "weight_hr_l0"]),
        *((k(4, 5), ["weight_ih", "weight_hh"]) for k in (nn.LSTMCell, nn.GRUCell, nn.RNNCell)),
        (nn.MultiheadAttention(8, 2), ["in_proj_weight", OUTPUT]),
        (nn.MultiheadAttention(8, 2, add_bias_kv=True), ["in_proj_weight", OUTPUT]),
        (
            nn.MultiheadAttention(8, 2, kdim=6, vdim=4),
            ["q_proj_weight", "k_proj_weight", "v_proj_weight", OUTPUT],
        ),
    ):
        assert names(module) == expected
        found = select_weights(nn.Sequential(module))
        assert list(found) == [f"0.{name}" for name in expected]
        for name, weight in found.items():
            assert weight is module.get_parameter(name.removeprefix("0."))


class Mine(nn.Linear):
    pass


NORMS = nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm([4, 1, 1]), nn.PReLU(4)
TABLES = nn.Sequential(nn.Embedding(10, 4), nn.EmbeddingBag(10, 4), nn.Linear(4, 2))
SHARED = nn.Linear(4, 4)
FROZEN = nn.Linear(4, 4).requires_grad_(False)
# A language model whose last layer is its embedding table.
TIED = nn.ModuleDict({"table": nn.Embedding(12, 6), "hidden": SHARED, "head": nn.Linear(6, 12)})
TIED["head"].weight = TIED["table"].weight
OWN = nn.ModuleDict({"z": Mine(2, 2), "a": nn.Conv1d(2, 2, 1), "m": nn.GRUCell(2, 2)})
CHILD = nn.ModuleDict({"module": nn.Linear(3, 3)})


def test_what_can_be_sparse_is_found_once_in_the_networks_own_order():
    for model, embeddings, expected in (
        (nn.Sequential(nn.Conv2d(3, 4, 1), *NORMS), True, ["0.weight"]),
        (TABLES, False, ["2.weight"]),
        (TABLES, True, ["0.weight", "1.weight", "2.weight"]),
        (TIED, False, ["hidden.weight"]),
        (TIED, True, ["table.weight", "hidden.weight"]),
        (nn.Sequential(SHARED, nn.ReLU(), SHARED), False, ["0.weight"]),
        (nn.Sequential(FROZEN, nn.Linear(4, 4)), False, ["1.weight"]),
        (OWN, False, ["z.weight", "a.weight", "m.weight_ih", "m.weight_hh"]),
        (CHILD, False, ["module.weight"]),  # which is no wrapper
    ):
        assert names(model, embeddings=embeddings) == expected


def test_lazy_layers_and_embeddings_with_sparse_gradients_are_refused(refused):
    network = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))
    assert names(network) == ["1.weight"]
    refused(r"'0\.weight' has sparse gradients", names, network, embeddings=True)
    network = nn.Sequential(nn.LazyLinear(4), nn.LazyConv1d(2, 1))
    refused(r"'0\.weight' has no shape yet: run one batch", names, network)
    network(torch.zeros(3, 5, 7))
    assert names(network) == ["0.weight", "1.weight"]


@pytest.fixture
def network():
    block = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1))
    return nn.ModuleDict({"stem": nn.Conv2d(3, 8, 3), "block": block, "head": nn.Linear(8, 2)})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exclude": ["head"]}, ["stem", "block.0", "block.1"]),
        ({"exclude": ["block.*", nn.Linear]}, ["stem"]),
        ({"include": ["block.*", "head.weight"], "exclude": ["block.0"]}, ["block.1", "head"]),
        ({"include": [nn.Conv2d], "exclude": ["stem"]}, ["block.0", "block.1"]),
        ({"include": []}, []),
        ({"exclude": "block.*"}, ["stem", "head"]),  # one needs no list
        ({"include": nn.Linear}, ["head"]),
    ],
)
def test_weights_are_chosen_by_pattern_and_type(network, options, expected):
    assert names(network, **options) == [f"{module}.weight" for module in expected]


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_pattern_that_fits_nothing_is_refused(network, option):
    with pytest.raises(UnknownNameError, match=r"unknown layer 'heads\.weight'.*'head\.weight'"):
        names(network, **{option: ["heads.weight"]})


# ---- what goes wrong silently in other libraries is refused here, or just works


def test_sparsifiers_share_optimizers_but_no_weights_until_one_lets_go(refused, backend):
    run = Run(sparsity=0.5, backend=backend)
    refused(r"another sparsifier holds '0\.weight'", run.sparsify, 0.5, backend=backend)
    run.sparsifier.detach()
    run.sparsify(0.5, backend=backend, topology="given")
    run = Run(sparsity=0.5, include="0", backend=backend)
    run.sparsify(0.75, include="2", backend=backend)
    assert [int((run.model[layer].weight == 0).sum()) for layer in (0, 2)] == [144, 324]
    model = mlp()
    refused(r"a Sequential is not a torch\.optim optimizer", Sparsifier, model, model)


def weight_normed(layer):
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(layer)


def pruned(layer):
    return prune.random_unstructured(layer, "weight", amount=0.5)


@pytest.mark.parametrize("compute", [parametrizations.weight_norm, weight_normed, pruned])
def test_a_weight_that_is_computed_from_others_is_refused_with_advice_that_works(refused, compute):
    model = nn.Sequential(compute(nn.Linear(4, 4)), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused(r"or leave it dense with exclude=\['0\.weight'\]", Sparsifier, model, optimizer)
    sparsifier = Sparsifier(model, optimizer, exclude=["0.weight"])
    assert [row.name for row in sparsifier.statistics()] == ["1.weight"]
