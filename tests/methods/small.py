"""What tests of methods train, and how: small, and the same bits each time."""

from typing import Any

from torch import nn

from freetickets.kernels.library import available
from freetickets.methods import get_method
from freetickets.models import create_model

SETTINGS: dict[str, Any] = {
    # Not "auto": what is faster may differ from one run to the next, and so the bits.
    "backend": "sparse" if available() else "masked",
    "batch_size": 12,
    "epochs": 12,
    "lr": 0.1,
    "quiet": True,
    "validation": 0.2,
}


class Transformer(nn.Module):
    """A classifier of sequences, also of what lies in a row."""

    def __init__(self, tokens=3, inputs=2, classes=3, layers=1):
        super().__init__()
        self.tokens = tokens
        self.embed = nn.Linear(inputs, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        tokens = x.flatten(1).unflatten(1, (self.tokens, -1))
        return self.head(self.encoder(self.embed(tokens)).mean(1))


IMAGES = (3, 8, 8)
# Networks of four classes, and the shape of an input.
NETWORKS: dict[str, Any] = {
    "mlp": (lambda: create_model("mlp-16-8", IMAGES, 4), IMAGES),
    "cnn": (lambda: create_model("cnn-4", IMAGES, 4), IMAGES),
    "wrn": (lambda: create_model("wrn-10-1", IMAGES, 4), IMAGES),
    "transformer": (lambda: Transformer(5, 6, 4, layers=2), (5, 6)),
}

EXPLORING: dict[str, Any] = {"tickets": 2, "interval": 2, "sparsity": 0.6}
CYCLES: dict[str, Any] = {"cycling": 0.3, "cycles": 2, "low": 0.3, "high": 1.0}
# Small ones, and how many members each has.
OPTIONS: dict[str, Any] = {
    "edst": (EXPLORING, 2),
    "dst": (EXPLORING, 2),
    "static": ({"tickets": 2, "sparsity": 0.6}, 2),
    "ltr": ({"tickets": 2, "sparsity": 0.6, "rewind": 0.25}, 2),
    "pf": ({"tickets": 2, "sparsity": 0.6}, 2),
    "dense": ({}, 1),
    "dense-ensemble": ({"tickets": 2}, 2),
    "snapshot": ({"tickets": 3}, 3),
    "fge": ({"tickets": 2}, 2),
    "mc-dropout": ({"passes": 4}, 4),
    "mimo": ({"members": 2}, 2),
    "batch-ensemble": ({"members": 3}, 3),
    "treenet": ({"members": 2}, 2),
    "sup-tickets": (EXPLORING | CYCLES | {"tickets": 1}, 1),
    "neurotrails": ({"members": 2, "interval": 9, "rate": 0.2, "sparsity": 0.3}, 2),
}
SMALL = {name: (get_method(name)(**options), n) for name, (options, n) in OPTIONS.items()}
