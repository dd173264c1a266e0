"""What goes wrong silently in other libraries is refused here, or just works."""

from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn.utils import parametrizations, prune

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Score, Sparsifier, select_weights


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_wrappers_do_not_change_the_names_of_weights() -> None:
    model, optimizer = make()
    bare = list(select_weights(model))
    assert list(select_weights(torch.compile(model, backend="eager"))) == bare
    assert list(select_weights(nn.DataParallel(model))) == bare
    wrapped, _ = Fabric(accelerator="cpu", devices=1).setup(model, optimizer)
    assert list(select_weights(wrapped)) == bare


def test_a_networks_own_child_called_module_is_no_wrapper() -> None:
    model = nn.Sequential()
    model.add_module("module", nn.Linear(3, 3))
    assert list(select_weights(model)) == ["module.weight"]


def test_a_second_sparsifier_of_the_same_weights_is_refused_until_the_first_lets_go(
    backend: Any,
) -> None:
    model, optimizer = make()
    first = Sparsifier(model, optimizer, 0.5, backend=backend)
    with pytest.raises(FreeTicketsError, match=r"another sparsifier holds '0\.weight'"):
        Sparsifier(model, optimizer, 0.5, backend=backend)
    first.detach()
    Sparsifier(model, optimizer, 0.5, backend=backend)


def test_two_sparsifiers_may_share_an_optimizer_if_their_weights_differ(backend: Any) -> None:
    model, optimizer = make()
    Sparsifier(model, optimizer, 0.5, include="0", backend=backend)
    Sparsifier(model, optimizer, 0.9, include="2", backend=backend)
    zeros = [int((layer.weight == 0).sum()) for layer in (model[0], model[2])]
    assert zeros == [300, 135]


def weight_normed(layer: nn.Module) -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(layer)


def pruned(layer: nn.Module) -> nn.Module:
    return prune.random_unstructured(layer, "weight", amount=0.5)


@pytest.mark.parametrize("compute", [parametrizations.weight_norm, weight_normed, pruned])
def test_a_weight_that_is_computed_from_others_is_refused_with_advice_that_works(
    compute: Any,
) -> None:
    model = nn.Sequential(compute(nn.Linear(4, 4)), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(FreeTicketsError, match=r"or leave it dense with exclude=\['0\.weight'\]"):
        Sparsifier(model, optimizer)
    sparsifier = Sparsifier(model, optimizer, exclude=["0.weight"])
    assert [row.name for row in sparsifier.statistics()] == ["1.weight"]


def test_a_computed_matrix_of_a_recurrent_layer_is_refused_too() -> None:
    model = parametrizations.weight_norm(nn.LSTM(4, 4), "weight_hh_l0")
    with pytest.raises(FreeTicketsError, match=r"'weight_hh_l0' is computed from others"):
        select_weights(model)
    assert list(select_weights(model, exclude="weight_hh_l0")) == ["weight_ih_l0"]


def test_a_network_whose_pruning_was_made_permanent_trains_on_with_its_topology() -> None:
    model = nn.Sequential(pruned(nn.Linear(8, 8)), nn.Linear(8, 4))
    with pytest.raises(FreeTicketsError, match=r"prune\.remove"):
        select_weights(model)
    prune.remove(model[0], "weight")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = Sparsifier(model, optimizer, topology="given")
    assert sparsifier.statistics()[0].nonzeros == 32


def test_an_optimizer_that_is_none_is_refused() -> None:
    model, _ = make()
    with pytest.raises(FreeTicketsError, match=r"a Sequential is not a torch\.optim optimizer"):
        Sparsifier(model, model)


def test_one_selector_needs_no_list() -> None:
    model, _ = make()
    assert list(select_weights(model, exclude="2")) == ["0.weight"]
    assert list(select_weights(model, include=nn.Linear)) == ["0.weight", "2.weight"]


def test_a_score_that_needs_something_unheard_of_is_refused() -> None:
    with pytest.raises(FreeTicketsError, match="did you mean 'gradient'"):
        Score(lambda view: view.weight, frozenset({"gradients"}))
