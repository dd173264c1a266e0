"""Any name builds a network for any task that it takes, and refuses the others in one line."""

import importlib
import sys

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.models import create_model

SMALL = ["wrn-10-1", "cifar-resnet-8", "resnet-18", "cnn", "cnn-4", "mlp-16-8"]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 33, 40)])
def test_a_network_gives_one_logit_a_class_and_trains(name, shape):
    model = create_model(name, shape, 7)
    assert isinstance(model, nn.Sequential)
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["wrn-10-1", "cifar-resnet-8", "cnn-4"])
@pytest.mark.parametrize("side", [8, 28])
def test_small_images_fit(name, side):
    assert create_model(name, (1, side, side), 3)(torch.zeros(2, 1, side, side)).shape == (2, 3)


@pytest.mark.parametrize("name", SMALL)
def test_a_network_is_its_children_in_order_and_the_same_of_the_same_seed(name):
    torch.manual_seed(3)
    model = create_model(name, (3, 32, 32), 5).eval()
    torch.manual_seed(3)
    again = create_model(name, (3, 32, 32), 5).state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())
    x = torch.randn(2, 3, 32, 32)
    whole = model(x)
    for child in model.children():
        x = child(x)
    torch.testing.assert_close(x, whole)
    assert isinstance(model[-1], nn.Linear)


@pytest.mark.parametrize("name", ["wrn-10-1", "cnn-4", "mlp-64"])
def test_dropout_acts_in_training_only(name):
    model = create_model(name, (1, 8, 8), 3, dropout=0.5)
    x = torch.randn(4, 1, 8, 8)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    ("name", "shape", "advice"),
    [
        ("wrn-10-1", (784,), r"\(channels, height, width\) of at least 8x8, not \(784,\)"),
        ("cnn", (1, 7, 28), "at least 8x8"),
        ("resnet-18", (3, 16, 16), "at least 32x32"),
        ("fast-4-6-5", (3, 8, 8), "at least 9x9"),
        ("mlp-8", (), "positive sizes"),
        ("mlp-8", (3, 0), "positive sizes"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(name, shape, advice):
    with pytest.raises(FreeTicketsError, match=advice):
        create_model(name, shape, 10)


@pytest.mark.parametrize(
    ("name", "options", "advice"),
    [
        ("mlp-8", {"classes": 0}, "at least 1 class"),
        ("wrn-10-1", {"dropuot": 1}, "did you mean 'dropout'"),
        ("wrn-10-1", {"width": 1}, "known: dropout"),
        ("resnet-18", {"dropout": 1}, "takes no options: leave out 'dropout'"),
        ("fast-4-4-4", {"activation": "gelo"}, "did you mean 'gelu'"),
        ("fast-4-4-4", {"scale": 0}, "its scale must be above 0, not 0"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(name, options, advice):
    with pytest.raises(FreeTicketsError, match=advice):
        create_model(name, (3, 32, 32), **{"classes": 10, **options})


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
    """A module in the current directory, which a command that was installed does not see."""
    (tmp_path / "own_nets.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    return "own_nets"


def test_a_factory_is_given_what_it_asks_for(own):
    assert create_model(f"{own}:takes_task", (5,), 3)(torch.zeros(1, 5)).shape == (1, 3)
    assert create_model(f"{own}:takes_nothing", (5,), 3)(torch.zeros(1, 2)).shape == (1, 2)
    assert create_model(f"{own}:Net", (4,), 3)(torch.zeros(1, 4)).shape == (1, 3)
    model = create_model(f"{own}:takes_anything", (5,), 3, inputs=6)
    assert model(torch.zeros(1, 6)).shape == (1, 2)
    assert len(list(create_model(f"{own}:takes_task", (5,), 3, bias=False).parameters())) == 1


@pytest.mark.parametrize(
    ("function", "options", "advice"),
    [
        ("takes_taks", {}, "did you mean 'takes_task'"),
        ("takes_task", {"bais": 1}, "did you mean 'bias'"),
        ("takes_nothing", {"bias": 1}, "takes no options"),
        ("takes_more", {}, "missing a required argument: 'num_classes'"),
        ("returns_number", {}, "must return an nn.Module, not int"),
        ("network", {}, "not a function that returns an nn.Module"),
        ("network.in_features.build", {}, "unknown name"),
        ("OWN", {}, "unknown name in own_nets"),
        ("network.in_features", {}, "not a function"),
    ],
)
def test_a_factory_that_does_not_fit_is_refused(own, function, options, advice):
    with pytest.raises(FreeTicketsError, match=advice) as caught:
        create_model(f"{own}:{function}", (5,), 3, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture
def namesake(own, tmp_path, monkeypatch):
    """A module of Python, and files of the current directory that have its name."""
    for file in ("colorsys.py", "wsgiref/own.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(OWN)
    for module in ("colorsys", "wsgiref", "wsgiref.own"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return own


def test_the_current_directory_hides_no_module(namesake, tmp_path):
    for _ in range(2):
        create_model(f"{namesake}:takes_nothing", (5,), 3)
    assert sys.path.count(str(tmp_path)) == 1
    assert not hasattr(importlib.import_module("colorsys"), "takes_nothing")


@pytest.mark.usefixtures("namesake")
@pytest.mark.parametrize("module", ["colorsys", "wsgiref.own"])
def test_a_module_of_the_current_directory_that_is_hidden_is_named(module):
    package = module.partition(".")[0]
    words = f"{package} is not that of the current directory.*, but .*{package}.*: give yours "
    with pytest.raises(FreeTicketsError, match=words):
        create_model(f"{module}:takes_nothing", (5,), 3)


@pytest.mark.usefixtures("namesake")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wsgiref.util:application_url", "did you mean 'application_uri'"),
        ("wsgiref.utils:application_uri", "cannot import wsgiref.utils"),
        ("owl_nets:build", "cannot import owl_nets"),
    ],
)
def test_a_folder_that_only_has_the_name_of_a_module_is_no_reason(name, words):
    with pytest.raises(FreeTicketsError, match=words):
        create_model(name, (5,), 3)
