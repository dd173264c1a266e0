"""Costs are pinned to the numbers of the papers, and layers to counts made by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from freetickets.methods import MIMO
from freetickets.models import create_model
from freetickets.sparsity.distribution import allocate
from freetickets.sparsity.layers import select_weights
from freetickets.training.ledger import count_macs, forward_flops

# Multiply-accumulates of the paper's and RigL's networks; then the share that ERK leaves of them.
NETWORKS = {
    ("wrn-28-10", 10): (5_243_328_768, {0.8: 0.33956, 0.9: 0.16862}),
    ("wrn-28-10", 100): (5_243_386_368, {0.8: 0.33740, 0.9: 0.16628}),
    ("resnet-50", 1000): (4_089_184_256, {0.8: 0.41379}),
}


@pytest.mark.parametrize(("name", "classes"), NETWORKS)
def test_networks_and_what_erk_leaves_of_them_cost_what_is_published(name, classes):
    shape = (3, 224, 224) if classes == 1000 else (3, 32, 32)
    with torch.device("meta"):
        model = create_model(name, shape, classes)
    costs, (macs, shares) = count_macs(model, shape), NETWORKS[name, classes]
    dense = forward_flops(costs)
    # A weight that costs nothing adds nothing.
    assert forward_flops(costs, {"embedding.weight": 0.5}) == dense == 2 * macs
    shapes = {key: tuple(weight.shape) for key, weight in select_weights(model).items()}
    for sparsity, share in shares.items():
        counts = allocate(shapes, sparsity, "erk")
        level = {key: counts[key] / torch.Size(shape).numel() for key, shape in shapes.items()}
        assert forward_flops(costs, level) / dense == pytest.approx(share, abs=1e-4)


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, query, memory):
        return self.attention(query, key=memory, value=memory)[0]


def test_a_layer_costs_what_a_count_by_hand_gives():
    for layer, shape, expected in (
        (nn.Linear(6, 4), (6,), 24),
        (nn.Linear(6, 4), (5, 6), 5 * 24),
        (nn.Conv1d(3, 4, 3), (3, 10), 8 * 36),
        (nn.Conv2d(4, 6, 3, stride=2, groups=2), (4, 9, 9), 16 * 108),
        (nn.Conv2d(3, 4, 3, dilation=2), (3, 9, 9), 25 * 108),
        (nn.Conv3d(2, 3, 2), (2, 4, 4, 4), 27 * 48),
        (nn.ConvTranspose1d(3, 4, 2, stride=2), (3, 5), 5 * 24),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 5, 5), 25 * 108),
        (nn.ConvTranspose3d(2, 3, 2), (2, 3, 3, 3), 27 * 48),
    ):
        assert count_macs(layer, shape) == {"weight": expected}


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_recurrent_layer_uses_its_weights_at_every_time_step(kind, gates, batch_first):
    costs = count_macs(kind(8, 16, 2, bidirectional=True, batch_first=batch_first), (5, 8))
    assert len(costs) == 8
    assert costs["weight_ih_l0"] == 5 * gates * 16 * 8
    assert costs["weight_hh_l1_reverse"] == 5 * gates * 16 * 16


SEPARATE = dict.fromkeys(("k_proj_weight", "v_proj_weight"), 7 * 48)


def test_attention_projects_queries_keys_and_values():
    for model, memory, expected in (
        (Attention(), 8, {"in_proj_weight": 19 * 64}),
        (Attention(kdim=6, vdim=6), 6, {"q_proj_weight": 5 * 64} | SEPARATE),
    ):
        costs = count_macs(model, (), example=(torch.zeros(5, 8), torch.zeros(7, memory)))
        expected = expected | {"out_proj.weight": 5 * 64}
        assert costs == {f"attention.{name}": cost for name, cost in expected.items()}


def test_every_weight_is_counted_shared_pruned_parametrized_or_behind_integers():
    costs = count_macs(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (5, 8))
    attention = {"self_attn.in_proj_weight": 5 * 3 * 64, "self_attn.out_proj.weight": 5 * 64}
    assert costs == attention | {"linear1.weight": 5 * 128, "linear2.weight": 5 * 128}
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3))
    costs = count_macs(model, (7,), example=torch.tensor([9] * 7))
    assert costs == {"1.weight": 7 * 24}
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = nn.Sequential(first, second, first)
    assert count_macs(model, (4,)) == {"0.weight": 3 * 16}
    pruned = nn.Conv2d(3, 4, 3)
    prune.l1_unstructured(pruned, "weight", 0.5)
    pruned(torch.ones(1, 3, 8, 8))
    model = nn.Sequential(pruned, nn.Flatten(), parametrizations.weight_norm(nn.Linear(144, 2)))
    assert count_macs(model, (3, 8, 8)) == {"0.weight": 36 * 108, "2.weight": 288}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_any_floating_type_is_counted_alike(dtype):
    model = create_model("cnn-4", (1, 8, 8), 2)
    assert count_macs(model, (1, 8, 8)) == count_macs(model.to(dtype), (1, 8, 8))


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


def test_a_sample_of_the_wrong_shape_is_named_and_a_method_says_itself_what_does_not_suit(refused):
    refused(r"Linear on a sample of shape \(5,\)", count_macs, nn.Linear(3, 4), (5,))

    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(6, 3), nn.Linear(4, 6)

        def forward(self, x):
            logits: Tensor = self.last(self.first(x).relu())
            return logits

    network = MIMO(members=2).transform(Reversed())
    refused(r"^MIMO: 2 inputs side by side do not fit Reversed", count_macs, network, (4,))
