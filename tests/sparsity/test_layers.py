import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.sparsity import select_weights


def names(model, **options):
    return list(select_weights(model, **options))


class Tied(nn.Module):
    """A language model whose last layer is its embedding table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 6)
        self.hidden = nn.Linear(6, 6)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.table.weight


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(4, 3),
        nn.Conv1d(4, 3, 3),
        nn.Conv2d(4, 3, 3),
        nn.Conv3d(4, 3, 3),
        nn.ConvTranspose1d(4, 3, 3),
        nn.ConvTranspose2d(4, 3, 3),
        nn.ConvTranspose3d(4, 3, 3),
    ],
    ids=lambda module: type(module).__name__,
)
def test_the_weight_of_linear_and_convolutional_layers_is_found_and_no_bias(module):
    assert names(module) == ["weight"]
    found = select_weights(nn.Sequential(module))
    assert list(found) == ["0.weight"]
    assert found["0.weight"] is module.weight


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_all_matrices_of_recurrent_layers_are_found(kind):
    module = kind(4, 5, num_layers=2, bidirectional=True)
    assert names(module) == [
        f"weight_{part}_l{layer}{direction}"
        for layer in range(2)
        for direction in ("", "_reverse")
        for part in ("ih", "hh")
    ]


def test_the_projection_of_an_lstm_is_found():
    assert names(nn.LSTM(4, 5, proj_size=3)) == ["weight_ih_l0", "weight_hh_l0", "weight_hr_l0"]


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells_are_found(kind):
    assert names(kind(4, 5)) == ["weight_ih", "weight_hh"]


def test_attention_has_one_input_projection_and_an_output_projection():
    assert names(nn.MultiheadAttention(8, 2)) == ["in_proj_weight", "out_proj.weight"]


def test_attention_with_separate_inputs_has_three():
    assert names(nn.MultiheadAttention(8, 2, kdim=6, vdim=4)) == [
        "q_proj_weight",
        "k_proj_weight",
        "v_proj_weight",
        "out_proj.weight",
    ]


def test_bias_vectors_of_attention_stay_dense():
    assert names(nn.MultiheadAttention(8, 2, add_bias_kv=True)) == [
        "in_proj_weight",
        "out_proj.weight",
    ]


def test_every_matrix_of_a_transformer_is_found_and_no_norm():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    matrices = {name for name, parameter in encoder.named_parameters() if parameter.ndim > 1}
    assert set(names(encoder)) == matrices
    assert len(matrices) == 8


def test_norms_and_biases_are_never_found():
    network = nn.Sequential(
        nn.Conv2d(3, 4, 1),
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.LayerNorm([4, 1, 1]),
        nn.InstanceNorm2d(4, affine=True),
        nn.PReLU(4),
        nn.Linear(4, 2),
    )
    assert names(network) == ["0.weight", "6.weight"]


def test_embeddings_are_sparse_only_on_request():
    network = nn.Sequential(nn.Embedding(10, 4), nn.EmbeddingBag(10, 4), nn.Linear(4, 2))
    assert names(network) == ["2.weight"]
    assert names(network, embeddings=True) == ["0.weight", "1.weight", "2.weight"]


def test_a_table_that_is_also_the_last_layer_is_sparse_only_on_request_and_once():
    assert names(Tied()) == ["hidden.weight"]
    assert names(Tied(), embeddings=True) == ["table.weight", "hidden.weight"]


def test_an_embedding_with_sparse_gradients_is_refused():
    network = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))
    assert names(network) == ["1.weight"]
    with pytest.raises(FreeTicketsError, match=r"'0\.weight' has sparse gradients"):
        names(network, embeddings=True)


def test_a_shared_weight_counts_once():
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[1].weight = network[0].weight
    assert names(network) == ["0.weight"]
    shared = nn.Linear(4, 4)
    assert names(nn.Sequential(shared, nn.ReLU(), shared)) == ["0.weight"]


def test_frozen_weights_are_skipped():
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[0].weight.requires_grad_(False)
    assert names(network) == ["1.weight"]


def test_lazy_layers_are_refused_until_they_have_a_shape():
    network = nn.Sequential(nn.LazyLinear(4), nn.LazyConv1d(2, 1))
    with pytest.raises(FreeTicketsError, match=r"'0\.weight' has no shape yet: run one batch"):
        names(network)
    network(torch.zeros(3, 5, 7))
    assert names(network) == ["0.weight", "1.weight"]


def test_weights_are_found_in_subclasses_and_in_the_networks_own_order():
    class Mine(nn.Linear):
        pass

    network = nn.ModuleDict({"z": Mine(2, 2), "a": nn.Conv1d(2, 2, 1), "m": nn.GRU(2, 2)})
    assert names(network) == ["z.weight", "a.weight", "m.weight_ih_l0", "m.weight_hh_l0"]


@pytest.fixture
def network():
    return nn.ModuleDict(
        {
            "stem": nn.Conv2d(3, 8, 3),
            "block": nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1)),
            "head": nn.Linear(8, 2),
        }
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exclude": ["head"]}, ["stem", "block.0", "block.1"]),
        ({"exclude": ["block.*", nn.Linear]}, ["stem"]),
        ({"include": ["block.*"]}, ["block.0", "block.1"]),
        ({"include": ["block.*", "head.weight"], "exclude": ["block.0"]}, ["block.1", "head"]),
        ({"include": [nn.Linear]}, ["head"]),
        ({"include": [nn.Conv2d], "exclude": ["stem"]}, ["block.0", "block.1"]),
        ({"include": []}, []),
    ],
)
def test_weights_are_chosen_by_pattern_and_type(network, options, expected):
    assert names(network, **options) == [f"{module}.weight" for module in expected]


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_pattern_that_fits_nothing_is_refused(network, option):
    with pytest.raises(UnknownNameError, match=r"unknown layer 'heads\.weight'.*'head\.weight'"):
        names(network, **{option: ["heads.weight"]})
