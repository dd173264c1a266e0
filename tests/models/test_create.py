"""Any name builds a network for any task that it takes, and refuses the others in one line."""

import importlib
import sys

import pytest
import torch
from torch import nn

from freetickets.models import create_model

SMALL = ["wrn-10-1", "cifar-resnet-8", "resnet-18", "cnn", "cnn-4", "mlp-16-8"]
TINY = [(name, (1, side, side)) for name in ("wrn-10-1", "cifar-resnet-8", "cnn-4") for side in
        (8, 28)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shape"), [*[(n, s) for n in SMALL for s in ((1, 32, 32), (3, 33, 40))], *TINY]
)
def test_a_network_is_its_children_in_order_and_the_same_of_the_same_seed(name, shape):
    torch.manual_seed(3)
    model = create_model(name, shape, 7)
    torch.manual_seed(3)
    again = create_model(name, shape, 7).state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())
    assert isinstance(model, nn.Sequential)
    assert isinstance(model[-1], nn.Linear)
    model.eval()
    x = torch.randn(2, *shape)
    whole = model(x)
    for child in model.children():
        x = child(x)
    torch.testing.assert_close(x, whole)
    assert whole.shape == (2, 7)
    whole.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["wrn-10-1", "cnn-4", "mlp-64"])
def test_dropout_is_an_option(name):
    model = create_model(name, (1, 8, 8), 3, dropout=0.5)
    x = torch.randn(4, 1, 8, 8)
    assert not torch.equal(model(x), model(x))


def test_an_input_or_an_option_that_does_not_fit_is_refused(refused):
    for name, options, advice in (
        ("wrn-10-1", {"input_shape": (784,)}, r"\(channels, height, width\) of at least 8x8, not"),
        ("cnn", {"input_shape": (1, 7, 28)}, "at least 8x8"),
        ("resnet-18", {"input_shape": (3, 16, 16)}, "at least 32x32"),
        ("fast-4-6-5", {"input_shape": (3, 8, 8)}, "at least 9x9"),
        *[("mlp-8", {"input_shape": shape}, "positive sizes") for shape in ((), (3, 0))],
        ("mlp-8", {"classes": 0}, "at least 1 class"),
        ("wrn-10-1", {"dropuot": 1}, "did you mean 'dropout'"),
        ("wrn-10-1", {"width": 1}, "known: dropout"),
        ("resnet-18", {"dropout": 1}, "takes no options: leave out 'dropout'"),
        ("fast-4-4-4", {"activation": "gelo"}, "did you mean 'gelu'"),
        ("fast-4-4-4", {"scale": 0}, "its scale must be above 0, not 0"),
    ):
        refused(
            advice, create_model, name, **{"input_shape": (3, 32, 32), "classes": 10, **options}
        )


# --- a user's own -------------------------------------------------------------------------------

OWN = """
from torch import nn

def takes_task(input_shape, classes, bias=True):
    return nn.Linear(input_shape[0], classes, bias=bias)

def takes_nothing():
    return nn.Linear(2, 2)

def takes_anything(**options):
    return nn.Linear(options.pop("inputs", 4), 2, **options)

def takes_more(num_classes):
    return nn.Linear(4, num_classes)

class Net(nn.Linear):
    def __init__(self, classes):
        super().__init__(4, classes)

def returns_number():
    return 3

network = nn.Linear(2, 2)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module in the current directory, which a command that was installed does not see.

    Two files there have the names of modules of Python.
    """
    for file in ("own_nets.py", "colorsys.py", "wsgiref/own.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for module in ("own_nets", "colorsys", "wsgiref", "wsgiref.own"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("function", "options", "shape", "parameters"),
    [
        ("takes_task", {}, (5, 3), 2),
        ("takes_task", {"bias": False}, (5, 3), 1),
        ("takes_nothing", {}, (2, 2), 2),
        ("Net", {}, (4, 3), 2),
        ("takes_anything", {"inputs": 6}, (6, 2), 2),
    ],
)
def test_a_factory_is_given_what_it_asks_for(function, options, shape, parameters):
    model = create_model(f"own_nets:{function}", (5,), 3, **options)
    assert (model.in_features, model.out_features) == shape
    assert len(list(model.parameters())) == parameters


HIDDEN = "{0} is not that of the current directory.*, but .*{0}.*: give yours "


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "options", "advice"),
    [
        ("own_nets:takes_taks", {}, "did you mean 'takes_task'"),
        ("own_nets:takes_task", {"bais": 1}, "did you mean 'bias'"),
        ("own_nets:takes_nothing", {"bias": 1}, "takes no options"),
        ("own_nets:takes_more", {}, "missing a required argument: 'num_classes'"),
        ("own_nets:returns_number", {}, "must return an nn.Module, not int"),
        ("own_nets:network", {}, "not a function that returns an nn.Module"),
        ("own_nets:network.in_features.build", {}, "unknown name"),
        ("own_nets:OWN", {}, "unknown name in own_nets"),
        ("own_nets:network.in_features", {}, "not a function"),
        ("owl_nets:build", {}, "cannot import owl_nets"),
        ("colorsys:takes_nothing", {}, HIDDEN.format("colorsys")),
        ("wsgiref.own:takes_nothing", {}, HIDDEN.format("wsgiref")),
        # A folder that only has the name of a module is no reason.
        ("wsgiref.util:application_url", {}, "did you mean 'application_uri'"),
        ("wsgiref.utils:application_uri", {}, "cannot import wsgiref.utils"),
    ],
)
def test_a_factory_that_does_not_fit_is_refused(refused, name, options, advice):
    refused(advice, create_model, name, (5,), 3, **options)


def test_the_current_directory_hides_no_module(own):
    for _ in range(2):
        create_model("own_nets:takes_nothing", (5,), 3)
    assert sys.path.count(str(own)) == 1
    assert not hasattr(importlib.import_module("colorsys"), "takes_nothing")
