"""What tests of methods train, and how: small, and the same bits each time."""

from typing import Any

from torch import nn

from freetickets.kernels.library import available

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
