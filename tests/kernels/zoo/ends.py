"""Networks with several inputs or outputs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import always, integers, member, normal


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, stride), nn.BatchNorm2d(outputs), nn.ReLU())


@member("inputs and outputs", (3, 8, 8), (6,))
class ImageAndFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(unit(3, 8), conv(8, 8))
        self.features = nn.Linear(6, 8)
        self.joint = nn.Bilinear(8, 8, 5)

    def forward(self, image: Tensor, features: Tensor) -> Tensor:
        y = self.image(image)
        f = F.relu(self.features(features))
        y = F.relu(y + f.unsqueeze(-1).unsqueeze(-1))
        return self.joint(y.mean((2, 3)), f)


class Masked(nn.Module):
    """A mask that may be given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = conv(3, 8), conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        x = torch.relu(self.conv1(x))
        if mask is not None:
            x = x.masked_fill(mask[:, None], 0.0)
        return self.fc(self.conv2(x * scale).relu().mean((2, 3)))


@member("inputs and outputs", (3, 8, 8), lambda n, g: torch.rand(n, 8, 8, generator=g) > 0.5)
def mask_given() -> nn.Module:
    return Masked()


@member("inputs and outputs", (3, 8, 8))
def mask_left_out() -> nn.Module:
    return Masked()


@member("inputs and outputs", (3, 8, 8), always(None), always(0.5))
def mask_none() -> nn.Module:
    return Masked()


@member("inputs and outputs", (3, 8, 8), always(3))
class DepthGiven(nn.Module):
    """A whole number says how often."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.step, self.fc = conv(3, 8), unit(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor, depth: int) -> Tensor:
        x = self.stem(x)
        for _ in range(depth):
            x = self.step(x) + x
        return self.fc(x.mean((2, 3)) / depth)


@member("inputs and outputs", lambda n, g: [normal(3, 8, 8)(n, g), normal(3, 8, 8)(n, g)])
class Pair(nn.Module):
    """Two images in one list."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = unit(3, 8), nn.Linear(8, 5)

    def forward(self, images: list[Tensor]) -> Tensor:
        first, second = images
        return self.fc((self.body(first) - self.body(second)).abs().mean((2, 3)))


@member("inputs and outputs", (3, 8, 8), (3, 8, 8), integers(2))
class Several(nn.Module):
    """However many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = conv(3, 8), nn.Linear(8, 5)

    def forward(self, *images: Tensor) -> Tensor:
        *maps, flags = images
        y = torch.stack([F.relu(self.body(m)) for m in maps]).sum(0)
        return self.fc(y.mean((2, 3))) * flags[:, None]


# ---- several outputs


@member("inputs and outputs", (3, 12, 12))
class Auxiliary(nn.Module):
    """A tuple: the classes, and those of a head on the way; the map in between, too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = unit(3, 8), conv(8, 8, stride=2), unit(8, 8)
        self.aux, self.fc = nn.Conv2d(8, 5, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.a(x)
        middle = self.b(x)
        aux = self.aux(middle).mean((2, 3))
        return self.fc(self.c(F.relu(middle)).mean((2, 3))), aux, middle


@member("inputs and outputs", (3, 16, 16))
class Pyramid(nn.Module):
    """A dictionary of maps, as detectors make it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [conv(3, 8, stride=2), conv(8, 8, stride=2), conv(8, 8, stride=2)]
        )
        self.lateral = nn.ModuleList([nn.Conv2d(8, 6, 1) for _ in range(3)])
        self.smooth = nn.ModuleList([conv(6, 6) for _ in range(3)])

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        levels = []
        for layer in self.down:
            x = F.relu(layer(x))
            levels.append(x)
        top = self.lateral[2](levels[2])
        found = OrderedDict({"p2": self.smooth[2](top)})
        for i in (1, 0):
            top = self.lateral[i](levels[i]) + F.interpolate(top, scale_factor=2, mode="nearest")
            found[f"p{i}"] = self.smooth[i](top)
        return found


class Answer(NamedTuple):
    logits: Tensor
    hidden: list[Tensor]
    nothing: Tensor | None = None


@member("inputs and outputs", (3, 8, 8))
class HiddenStates(nn.Module):
    """A named tuple with all maps, among them some that are read before and after a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([conv(3, 8), conv(8, 8), conv(8, 8)])
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Answer:
        hidden = [x]
        for layer in self.layers:
            x = layer(x)
            hidden.append(x)
            x = x.relu()
        return Answer(self.fc(x.mean((2, 3))), hidden)


@dataclass
class Output:
    logits: Tensor
    features: Tensor


@member("inputs and outputs", (3, 8, 8))
class DataClass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Sequential(unit(3, 8), conv(8, 8)), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Output:
        features = self.body(x)
        return Output(self.fc(features.mean((2, 3))), features)


@member("inputs and outputs", (3, 8, 8))
class SameTwice(nn.Module):
    """Outputs that are the input, one another, a view of one another, a size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.second = conv(3, 8), conv(8, 8)

    def forward(self, x: Tensor) -> list[object]:
        y = self.conv(x)
        z = F.relu(self.second(y) + y)
        return [x, y, y, z, z[:, :2], {"argmax": z.flatten(1).argmax(1), "size": z.shape[2]}]
