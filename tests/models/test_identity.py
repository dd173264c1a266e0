import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freetickets.models.identity import network_identity


class Block(nn.Module):
    def __init__(self, act=torch.relu, scale=1.0):
        super().__init__()
        self.fc, self.act, self.scale = nn.Linear(3, 3), act, scale

    def forward(self, x):
        return self.act(self.fc(x)) * self.scale


class Skip(Block):
    def forward(self, x):
        return x + super().forward(x)


class Printed(nn.Module):
    def extra_repr(self):
        return repr(object())


def typed_at_a_prompt():
    names = {"nn": nn, "__name__": "prompt"}
    exec("class Net(nn.Module):\n    def forward(self, x): return x", names)
    return names["Net"]()


@pytest.mark.parametrize("build", [Block, Printed, typed_at_a_prompt])
def test_weights_addresses_and_code_that_is_not_found_don_t_count(build):
    assert network_identity(build()) == network_identity(build())
    assert network_identity(build()) == network_identity(build().to("meta").eval())


def test_networks_of_equal_shapes_that_compute_otherwise_are_told_apart():
    for other in (
        *[Skip(), Block(torch.tanh), Block(F.silu), Block(scale=0.5), Block(nn.ReLU())],
        *[nn.Sequential(Block()), nn.Linear(3, 3)],
    ):
        assert network_identity(other) != network_identity(Block())


def test_code_counts_but_not_its_comments_and_layout(tmp_path):
    def identity(name, line):
        path = tmp_path / f"{name}.py"
        path.write_text(f"class Net(nn.Linear):\n    def forward(self, x):\n        {line}\n")
        names = {"nn": nn, "__name__": "their_own"}
        exec(compile(path.read_text(), path, "exec"), names)
        return network_identity(names["Net"](3, 3))

    plain = identity("a", "return super().forward(x)")
    assert identity("b", "return  super().forward( x )  # simple") == plain
    assert identity("c", "return 2 * super().forward(x)") != plain
