"""What goes wrong silently in other libraries is refused here, or just works."""

from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn.utils import parametrizations

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


def test_a_parametrized_weight_is_refused_unless_excluded() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4))
    with pytest.raises(FreeTicketsError, match=r"'0\.weight' is parametrized"):
        select_weights(model)
    assert list(select_weights(model, exclude="0*")) == ["1.weight"]


def test_one_selector_needs_no_list() -> None:
    model, _ = make()
    assert list(select_weights(model, exclude="2")) == ["0.weight"]
    assert list(select_weights(model, include=nn.Linear)) == ["0.weight", "2.weight"]


def test_a_score_that_needs_something_unheard_of_is_refused() -> None:
    with pytest.raises(FreeTicketsError, match="did you mean 'gradient'"):
        Score(lambda view: view.weight, frozenset({"gradients"}))
