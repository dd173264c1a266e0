"""Wide residual networks with pre-activation (Zagoruyko & Komodakis, 2016), for small images."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from ..kernels.layout import BatchNormReLU


class Block(nn.Module):
    """Two 3x3 convolutions, each after BatchNorm and ReLU, around which the input skips."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = BatchNormReLU(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.bn2 = BatchNormReLU(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(N, inputs, H, W)` to `(N, outputs, H / stride, W / stride)`."""
        active = self.bn1(x)
        # A skip that changes the shape starts from the activated input, an identity from the raw.
        skip = x if self.shortcut is None else self.shortcut(active)
        active = self.bn2(self.conv1(active))
        return skip + self.conv2(self.dropout(active))


def wide_resnet(
    input_shape: tuple[int, ...], classes: int, *, blocks: int, width: int, dropout: float = 0.0
) -> nn.Sequential:
    """Builds a WRN of depth `6 * blocks + 4` whose stages are `width` times as wide as a ResNet's.

    Args:
        input_shape: `(channels, height, width)` of one image.
        classes: How many outputs.
        blocks: Blocks in each of the three stages.
        width: The factor on the 16, 32 and 64 channels of the stages.
        dropout: The rate between the two convolutions of a block.

    Example:
        >>> list(dict(wide_resnet((3, 32, 32), 10, blocks=1, width=1).named_children()))
        ['conv1', 'block1', 'block2', 'block3', 'bn', 'relu', 'pool', 'flatten', 'fc']
    """

    def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        first = Block(inputs, outputs, stride, dropout)
        return nn.Sequential(
            first, *(Block(outputs, outputs, 1, dropout) for _ in range(blocks - 1))
        )

    model = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False),
            block1=stage(16, 16 * width, 1),
            block2=stage(16 * width, 32 * width, 2),
            block3=stage(32 * width, 64 * width, 2),
            bn=nn.BatchNorm2d(64 * width),
            relu=nn.ReLU(inplace=True),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(64 * width, classes),
        )
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            # N(0, sqrt(2 / (k * k * outputs))), as the authors of the paper start from.
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(model.get_submodule("fc").get_parameter("bias"))
    return model
