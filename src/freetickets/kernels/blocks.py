"""Few images in groups: cut into blocks, which lie side by side as if they were samples.

So the kernels for many samples serve one image too. What works element by element takes no notice;
a convolution is given each block with a border of its neighbours' positions, and pads nothing.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import FreeTicketsError
from .groups import check
from .library import Geometry, HaloStruct, call, empty, lanes, ready


class Border(NamedTuple):
    """How many positions of its neighbours a block gets."""

    top: int
    bottom: int
    left: int
    right: int


class Cut(NamedTuple):
    """How an image is cut into blocks, which follow each other row by row."""

    rows: int = 1
    columns: int = 1

    @classmethod
    def of(cls, samples: int) -> "Cut":
        """The most blocks, a power of two, with which this many samples still fit into the lanes.

        Example:
            >>> Cut.of(10**6)
            Cut(rows=1, columns=1)
        """
        count = 1 << max(0, (lanes() // max(1, samples)).bit_length() - 1)
        rows = 1 << (count.bit_length() - 1) // 2
        return cls(rows, count // rows)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.rows * self.columns

    def fits(self, geometry: Geometry, height: int, width: int) -> bool:
        """Whether a convolution makes equal blocks of its results of equal blocks of such maps."""
        results = geometry.output_size(height, width)
        sizes = zip((height, width), results, self, geometry.stride, strict=True)
        return all(size % (parts * step) == 0 and made * step == size
                   for size, made, parts, step in sizes)  # fmt: skip

    def border(self, geometry: Geometry) -> Border | None:
        """What a convolution reads of a block's neighbours; None: nothing."""
        if self.blocks == 1:
            return None
        found: list[int] = []
        for kernel, step, pad in zip(
            geometry.shape[2:], geometry.stride, geometry.padding, strict=True
        ):
            found += [pad, max(0, kernel - pad - step)]
        return Border(*found) if any(found) else None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the blocks of maps (N, C, H, W)."""
        samples, channels, height, width = shape
        return samples * self.blocks, channels, height // self.rows, width // self.columns

    def cut(self, x: Tensor) -> Tensor:
        """The blocks of maps, as samples."""
        if self.blocks == 1:
            return x
        shape = self.shape(tuple(x.shape))
        _, channels, height, width = shape
        parts = x.reshape(-1, channels, self.rows, height, self.columns, width)
        return parts.permute(0, 2, 4, 1, 3, 5).reshape(shape)

    def join(self, x: Tensor) -> Tensor:
        """Undoes `cut`."""
        if self.blocks == 1:
            return x
        parts = x.reshape(-1, self.rows, self.columns, *x.shape[1:]).permute(0, 3, 1, 4, 2, 5)
        return parts.flatten(4, 5).flatten(2, 3)


def with_border(
    x: Tensor, grid: Cut, border: Border, scaling: tuple[Tensor, Tensor, bool] | None = None
) -> Tensor:
    """Groups of blocks, each with a border of its neighbours; beyond the image all is zero.

    Args:
        x: The blocks, in groups whose lanes hold whole images.
        grid: Of which they are.
        border: What each block gets.
        scaling: What is done to x first: see `ops.Scaling`.
    """
    check(x, 5, "blocks")
    groups, channels, height, width, width_of_group = x.shape
    if scaling is not None and any(part.shape != (channels,) for part in scaling[:2]):
        raise FreeTicketsError(f"blocks of {channels} channels can't be scaled by others' factors")
    if min(border) < 0:
        raise FreeTicketsError(f"a border can't have {min(border)} positions")
    size = (height + border.top + border.bottom, width + border.left + border.right)
    y = empty(groups, channels, *size, width_of_group)
    if y.numel():
        struct = HaloStruct(groups, width_of_group, channels, height, width, *grid, *border)
        threads = torch.get_num_threads()
        call("ft_halo", struct, ready(x), *(scaling or (None, None, False)), y, threads)
    return y
