"""Residual networks for ImageNet and CIFAR (He et al. 2015), and wide ones (Zagoruyko 2016)."""

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.layout import BatchNormReLU


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input skips."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNormReLU(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _downsample(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(N, inputs, H, W)` to `(N, width, H / stride, W / stride)`."""
        out = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        skip = x if self.downsample is None else self.downsample(x)
        return F.relu(out.add_(skip), inplace=True)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones that narrow and widen, around which the input skips.

    The stride is on the 3x3 convolution ("v1.5"): on the first 1x1 it would drop inputs unseen.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = BatchNormReLU(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = BatchNormReLU(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _downsample(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(N, inputs, H, W)` to `(N, 4 * width, H / stride, W / stride)`."""
        out = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        out = self.bn3(self.conv3(out))
        skip = x if self.downsample is None else self.downsample(x)
        return F.relu(out.add_(skip), inplace=True)


def resnet(
    input_shape: tuple[int, ...], classes: int, *, blocks: tuple[int, ...], bottleneck: bool
) -> nn.Sequential:
    """Builds a ResNet for large images, with the parameter names that torchvision uses.

    `blocks` is how many each stage has; the stages are 64, 128, ... channels wide.
    """
    stem = OrderedDict[str, nn.Module](
        conv1=nn.Conv2d(input_shape[0], 64, 7, stride=2, padding=3, bias=False),
        bn1=nn.BatchNorm2d(64),
        relu=nn.ReLU(inplace=True),
        maxpool=nn.MaxPool2d(3, stride=2, padding=1),
    )
    return _assemble(stem, 64, classes, blocks, Bottleneck if bottleneck else BasicBlock)


def cifar_resnet(input_shape: tuple[int, ...], classes: int, *, blocks: int) -> nn.Sequential:
    """Builds a ResNet of depth `6 * blocks + 2` for small images: 16, 32 and 64 channels.

    A skip that changes the shape is a 1x1 convolution, not padding with zeros, so that every
    connection has weights.
    """
    stem = OrderedDict[str, nn.Module](
        conv1=nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False),
        bn1=nn.BatchNorm2d(16),
        relu=nn.ReLU(inplace=True),
    )
    return _assemble(stem, 16, classes, (blocks,) * 3, BasicBlock)


def _assemble(
    stem: OrderedDict[str, nn.Module], width: int, classes: int, blocks: tuple[int, ...],
    block: type[BasicBlock] | type[Bottleneck],
) -> nn.Sequential:  # fmt: skip
    # Each stage is twice as wide as the last, and half the size.
    inputs = width
    for stage, count in enumerate(blocks):
        wide = width * 2**stage
        first = block(inputs, wide, stride=1 if stage == 0 else 2)
        inputs = block.expansion * wide
        rest = (block(inputs, wide, stride=1) for _ in range(count - 1))
        stem[f"layer{stage + 1}"] = nn.Sequential(first, *rest)
    end = {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    model = nn.Sequential(OrderedDict(**stem, **end, fc=nn.Linear(inputs, classes)))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    return model


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


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
        # In place: fresh memory for the sum would take longer than the addition.
        return self.conv2(self.dropout(active)).add_(skip)


def wide_resnet(
    input_shape: tuple[int, ...], classes: int, *, blocks: int, width: int, dropout: float = 0.0
) -> nn.Sequential:
    """Builds a WRN of depth `6 * blocks + 4` whose stages are `width` times as wide as a ResNet's.

    Dropout is between the two convolutions of a block.
    """

    def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        first = Block(inputs, outputs, stride, dropout)
        rest = (Block(outputs, outputs, 1, dropout) for _ in range(blocks - 1))
        return nn.Sequential(first, *rest)

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
