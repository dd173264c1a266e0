"""Costs are pinned to the numbers of the papers, and layers to counts made by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from freetickets.errors import FreeTicketsError
from freetickets.methods import MIMO
from freetickets.models import create_model
from freetickets.sparsity.distribution import allocate
from freetickets.sparsity.layers import select_weights
from freetickets.training.flops import LayerCost, count_macs, forward_flops, train_flops


def costs_of(name, shape, classes):
    with torch.device("meta"):
        return count_macs(create_model(name, shape, classes), shape)


def micronet(costs, densities=None):
    """FLOPs as the MicroNet challenge counts them, and RigL's tables: one more an output."""
    return forward_flops(costs, densities) + sum(cost.outputs for cost in costs.values())


def rigl_step(sparse, dense, interval):
    """FLOPs of a sample as RigL counts them: of so many sparse steps and one dense gradient."""
    return (train_flops(sparse) * interval + 2 * sparse + dense) / (interval + 1)


@pytest.fixture(scope="module")
def resnet50():
    return costs_of("resnet-50", (3, 224, 224), 1000)


# --- whole networks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "weights", "flops"),
    [(10, 36_461_232, 10_486_657_536), (100, 36_518_832, 10_486_772_736)],
)
def test_wide_resnet_costs_what_the_paper_counts(classes, weights, flops):
    costs = costs_of("wrn-28-10", (3, 32, 32), classes)
    assert sum(cost.weights for cost in costs.values()) == weights
    assert forward_flops(costs) == flops
    # A weight that costs nothing adds nothing.
    assert forward_flops(costs, {"embedding.weight": 0.5}) == flops


def test_resnet50_costs_what_rigl_counts(resnet50):
    assert sum(cost.macs for cost in resnet50.values()) == 4_089_184_256
    assert sum(cost.weights for cost in resnet50.values()) == 25_502_912


# --- sparse networks, and RigL's published table -----------------------------------------------


@pytest.mark.parametrize(
    ("name", "classes", "sparsity", "macs", "of_micronet", "rigl", "interval"),
    [
        ("wrn-28-10", 100, 0.8, 0.33740, 0.33756, 0.33762, 1000),
        ("wrn-28-10", 100, 0.9, 0.16628, 0.16649, 0.16656, 1000),
        ("wrn-28-10", 10, 0.8, 0.33956, 0.33972, 0.33978, 1000),
        ("wrn-28-10", 10, 0.9, 0.16862, 0.16882, 0.16889, 1000),
        ("resnet-50", 1000, 0.8, 0.41379, 0.41459, 0.41384, 4000),
    ],
)
def test_erk_ratios_equal_the_reference(name, classes, sparsity, macs, of_micronet, rigl, interval):
    costs = costs_of(name, (3, 224, 224) if classes == 1000 else (3, 32, 32), classes)
    with torch.device("meta"):
        model = create_model(name, (3, 32, 32), classes)
    shapes = {key: tuple(weight.shape) for key, weight in select_weights(model).items()}
    counts = allocate(shapes, sparsity, "erk")
    level = {key: counts[key] / costs[key].weights for key in shapes}
    dense, sparse = forward_flops(costs), forward_flops(costs, level)
    assert sparse / dense == pytest.approx(macs, abs=1e-4)
    assert micronet(costs, level) / micronet(costs) == pytest.approx(of_micronet, abs=1e-4)
    step = rigl_step(sparse, dense, interval) / train_flops(dense)
    assert step == pytest.approx(rigl, abs=1e-4)


RIGL_README = {
    "erk": {0.8: (2.086, 2.09), 0.9: (1.228, 1.23), 0.95: (0.629, 0.63), 0.965: (0.448, 0.45)},
    "uniform": {0.8: (1.140, 1.14), 0.9: (0.657, 0.66), 0.95: (0.416, 0.42), 0.965: (0.343, 0.34)},
}


def erk_by_bisection(shapes, sparsity):
    """min(1, scale * sum(shape) / prod(shape)), with the scale that leaves the wanted weights."""
    wanted = (1 - sparsity) * sum(shape.numel() for shape in shapes.values())
    low, high = 0.0, 1e6
    for _ in range(100):
        scale = (low + high) / 2
        found = {n: min(1.0, scale * sum(s) / s.numel()) for n, s in shapes.items()}
        active = sum(density * shapes[name].numel() for name, density in found.items())
        low, high = (scale, high) if active < wanted else (low, scale)
    return found


@pytest.fixture(scope="module")
def keras_resnet50(resnet50):
    """RigL's model pads its 224x224 input to 230x230: conv1 gives 115x115, not 112x112."""
    pixels = 115 * 115
    conv1 = LayerCost(macs=7 * 7 * 3 * 64 * pixels, outputs=64 * pixels, weights=7 * 7 * 3 * 64)
    return resnet50 | {"conv1.weight": conv1}


@pytest.mark.parametrize("distribution", ["erk", "uniform"])
@pytest.mark.parametrize("sparsity", [0.8, 0.9, 0.95, 0.965])
def test_training_costs_match_rigls_readme(keras_resnet50, distribution, sparsity):
    with torch.device("meta"):
        model = create_model("resnet-50", (3, 224, 224), 1000)
    shapes = {name: p.shape for name, p in model.named_parameters() if name in keras_resnet50}
    if distribution == "erk":
        densities = erk_by_bisection(shapes, sparsity)
    else:  # the first convolution stays dense, the classifier does not
        densities = dict.fromkeys(shapes, 1 - sparsity) | {"conv1.weight": 1.0}
    dense = micronet(keras_resnet50)
    assert dense == pytest.approx(8.2023e9, rel=1e-5)
    sparse = micronet(keras_resnet50, densities)
    ratio = 5 * rigl_step(sparse, dense, 100) / train_flops(dense)
    computed, published = RIGL_README[distribution][sparsity]
    assert ratio == pytest.approx(computed, abs=0.001)
    assert ratio == pytest.approx(published, abs=0.01)


# --- layers, by hand ----------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, query, memory):
        return self.attention(query, key=memory, value=memory)[0]


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.Linear(6, 4), (6,), LayerCost(24, 4, 24)),
        (nn.Linear(6, 4), (5, 6), LayerCost(5 * 24, 20, 24)),
        (nn.Conv1d(3, 4, 3), (3, 10), LayerCost(8 * 36, 32, 36)),
        (nn.Conv2d(4, 6, 3, stride=2, groups=2), (4, 9, 9), LayerCost(16 * 108, 96, 108)),
        (nn.Conv2d(3, 4, 3, dilation=2), (3, 9, 9), LayerCost(25 * 108, 100, 108)),
        (nn.Conv3d(2, 3, 2), (2, 4, 4, 4), LayerCost(27 * 48, 81, 48)),
        (nn.ConvTranspose1d(3, 4, 2, stride=2), (3, 5), LayerCost(5 * 24, 40, 24)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 5, 5), LayerCost(25 * 108, 294, 108)),
        (nn.ConvTranspose3d(2, 3, 2), (2, 3, 3, 3), LayerCost(27 * 48, 192, 48)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_layer_costs_what_a_count_by_hand_gives(layer, shape, expected):
    assert count_macs(layer, shape) == {"weight": expected}


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_recurrent_layer_uses_its_weights_at_every_time_step(kind, gates, batch_first):
    costs = count_macs(kind(8, 16, 2, bidirectional=True, batch_first=batch_first), (5, 8))
    assert len(costs) == 8
    assert costs["weight_ih_l0"] == LayerCost(5 * gates * 16 * 8, 5 * gates * 16, gates * 16 * 8)
    assert costs["weight_hh_l1_reverse"].macs == 5 * gates * 16 * 16


SEPARATE = {name: LayerCost(7 * 48, 56, 48) for name in ("k_proj_weight", "v_proj_weight")}


@pytest.mark.parametrize(
    ("model", "memory", "expected"),
    [
        (Attention(), 8, {"in_proj_weight": LayerCost(19 * 64, 19 * 8, 3 * 64)}),
        (Attention(kdim=6, vdim=6), 6, {"q_proj_weight": LayerCost(5 * 64, 40, 64)} | SEPARATE),
    ],
)
def test_attention_projects_queries_keys_and_values(model, memory, expected):
    costs = count_macs(model, (), example=(torch.zeros(5, 8), torch.zeros(7, memory)))
    expected = expected | {"out_proj.weight": LayerCost(5 * 64, 5 * 8, 64)}
    assert costs == {f"attention.{name}": cost for name, cost in expected.items()}


def test_every_weight_of_a_transformer_is_counted_also_behind_integers():
    costs = count_macs(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (5, 8))
    macs = {name: cost.macs for name, cost in costs.items()}
    attention = {"self_attn.in_proj_weight": 5 * 3 * 64, "self_attn.out_proj.weight": 5 * 64}
    assert macs == attention | {"linear1.weight": 5 * 128, "linear2.weight": 5 * 128}
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3))
    costs = count_macs(model, (7,), example=torch.tensor([9] * 7))
    assert costs == {"1.weight": LayerCost(7 * 24, 21, 24)}


def test_a_shared_weight_adds_up_under_one_name():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = nn.Sequential(first, second, first)
    assert count_macs(model, (4,)) == {"0.weight": LayerCost(3 * 16, 3 * 4, 16)}


def test_pruned_and_parametrized_weights_are_counted():
    pruned = nn.Conv2d(3, 4, 3)
    prune.l1_unstructured(pruned, "weight", 0.5)
    pruned(torch.ones(1, 3, 8, 8))
    model = nn.Sequential(pruned, nn.Flatten(), parametrizations.weight_norm(nn.Linear(144, 2)))
    macs = {name: cost.macs for name, cost in count_macs(model, (3, 8, 8)).items()}
    assert macs == {"0.weight": 36 * 108, "2.weight": 288}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_any_floating_type_is_counted_alike(dtype):
    model = create_model("cnn-4", (1, 8, 8), 2)
    assert count_macs(model, (1, 8, 8)) == count_macs(model.to(dtype), (1, 8, 8))


# --- manners ------------------------------------------------------------------------------------


class Fussy(nn.Module):
    """Has all that a count could disturb; `on_meta` says whether the first attempt succeeds."""

    def __init__(self, on_meta):
        super().__init__()
        self.on_meta = on_meta
        self.net = create_model("cnn-4", (1, 8, 8), 2, dropout=0.5)
        self.scale = torch.ones(1)  # neither parameter nor buffer

    def forward(self, x):
        self.scale += 1
        if not self.on_meta:
            x.sum().item()
        return self.net(x) * self.scale


@pytest.mark.parametrize("on_meta", [True, False])
def test_the_model_is_left_as_it_was(on_meta):
    model = Fussy(on_meta).train()
    model.net.get_submodule("fc").eval()
    calls: list[int] = []
    model.net.register_forward_hook(lambda *_: calls.append(1))
    modes = [module.training for module in model.modules()]
    hooks = [len(module._forward_hooks) for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()

    assert len(count_macs(model, (1, 8, 8))) == len(count_macs(model.net, (1, 8, 8))) > 0
    assert [module.training for module in model.modules()] == modes
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert calls == []
    assert model.scale.item() == 1
    for name, value in model.state_dict().items():
        assert value.device.type == "cpu"
        assert torch.equal(value, before[name])
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_a_sample_of_the_wrong_shape_is_named():
    with pytest.raises(FreeTicketsError, match=r"Linear on a sample of shape \(5,\)") as caught:
        count_macs(nn.Linear(3, 4), (5,))
    assert "\n" not in str(caught.value)


def test_a_network_that_does_not_suit_its_method_says_so_itself():
    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(6, 3), nn.Linear(4, 6)

        def forward(self, x):
            logits: Tensor = self.last(self.first(x).relu())
            return logits

    with pytest.raises(FreeTicketsError, match=r"^MIMO: 2 inputs side by side do not fit Reversed"):
        count_macs(MIMO(members=2).transform(Reversed()), (4,))
