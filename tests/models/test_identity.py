import textwrap
from types import ModuleType

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


def test_weights_don_t_count():
    assert network_identity(Block()) == network_identity(Block())
    assert network_identity(Block()) == network_identity(Block().to("meta").eval())


@pytest.mark.parametrize(
    "other",
    [
        Skip(),
        Block(torch.tanh),
        Block(F.silu),
        Block(scale=0.5),
        Block(nn.ReLU()),
        nn.Sequential(Block()),
        nn.Linear(3, 3),
    ],
    ids=lambda network: type(network).__name__,
)
def test_networks_of_equal_shapes_that_compute_otherwise_are_told_apart(other):
    assert network_identity(other) != network_identity(Block())


def test_code_counts_but_not_its_comments_and_layout(tmp_path):
    def load(name, line):
        path = tmp_path / f"{name}.py"
        path.write_text(
            textwrap.dedent(f"""
            from torch import nn

            class Net(nn.Linear):
                def forward(self, x):
                    {line}
            """)
        )
        module = ModuleType("their_own")
        exec(compile(path.read_text(), path, "exec"), vars(module))
        return module.Net(3, 3)

    plain, noted, doubled = (
        network_identity(load(name, line))
        for name, line in [
            ("a", "return super().forward(x)"),
            ("b", "return  super().forward( x )  # simple"),
            ("c", "return 2 * super().forward(x)"),
        ]
    )
    assert plain == noted != doubled


def test_code_that_python_does_not_find_is_left_out():
    names = {"nn": nn, "__name__": "prompt"}
    exec("class Net(nn.Module):\n    def forward(self, x): return x", names)
    assert network_identity(names["Net"]()) == network_identity(names["Net"]())


def test_addresses_in_what_is_printed_don_t_count():
    class Printed(nn.Module):
        def extra_repr(self):
            return repr(object())

    assert network_identity(Printed()) == network_identity(Printed())
