"""What any module, a user's own too, takes from the training data before it is trained."""

from typing import Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import FreeTicketsError

# Images whose patches are unfolded at a time: 256 of 32x32x3 take 24 MB.
_AT_A_TIME = 256


@runtime_checkable
class Preparable(Protocol):
    """A module that looks at training data once, before the first step.

    It must keep what it finds in buffers or frozen parameters that are in its `state_dict`: then
    tickets and checkpoints have it, and a resumed run or a loaded ensemble needs no data.
    """

    def prepare_on(self, inputs: Tensor) -> None:
        """Takes training samples (N, ...) as the network gets them, not augmented, on the CPU."""


def preparable_modules(network: nn.Module) -> list[nn.Module]:
    """Returns the modules of a network that look at training data first."""
    return [module for module in network.modules() if isinstance(module, Preparable)]


def prepare(network: nn.Module, inputs: Tensor) -> None:
    """Shows training samples to all modules of a fresh network that ask for it.

    Training does this by itself, `Method.fit` and `freetickets train`. For a loop of your own call
    it once, before the first step, with samples as the network gets them.
    """
    with torch.no_grad():
        for module in preparable_modules(network):
            cast(Preparable, module).prepare_on(inputs)


class Whitening(nn.Module):
    """A first convolution that is computed from the training images, not trained.

    What comes out is uncorrelated and of variance 1. The filters are the eigenvectors of the
    covariance of all patches, each divided by the root of its eigenvalue (and a little more, so
    that noise is not blown up), and the same with a minus, so that an activation loses nothing.
    They are frozen; only the bias is trained: without one, the layer behind needs no gradient for
    its inputs. There is no padding, because zeros around an image are no patches of it.

    Until it has seen images, it passes on the pixels of a patch as they are. `eps` is added to the
    eigenvalues (the variance of a pixel is about 1).
    """

    def __init__(
        self, channels: int, kernel: int = 2, eps: float = 5e-4, bias: bool = True
    ) -> None:
        super().__init__()
        size = channels * kernel**2
        self.eps = eps
        # A layer of PyTorch's own: what is fast, counted or traced is so for this one as well.
        self.conv = nn.Conv2d(channels, 2 * size, kernel, bias=bias)
        self.conv.weight.requires_grad_(False)
        self._set(torch.eye(size))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(N, channels, H, W)` to `(N, outputs, H - kernel + 1, W - kernel + 1)`."""
        return self.conv(x)

    @torch.no_grad()
    def prepare_on(self, inputs: Tensor) -> None:
        """Computes the filters from images."""
        if inputs.ndim != 4 or inputs.shape[1] != self.conv.in_channels:
            raise FreeTicketsError(
                f"whitening needs images with {self.conv.in_channels} channels, "
                f"not inputs of shape {tuple(inputs.shape)}"
            )
        values, vectors = torch.linalg.eigh(patch_covariance(inputs, self.conv.kernel_size[0]))
        vectors = vectors.T.flip(0)  # one in each row, the strongest first
        # A vector may point either way: it is chosen here, not by the linear algebra at hand.
        largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
        # Rounding makes an eigenvalue of 0 slightly negative.
        scale = (values.flip(0).clamp(min=0) + self.eps).rsqrt()
        self._set(vectors * largest.sign() * scale[:, None])

    @torch.no_grad()
    def _set(self, filters: Tensor) -> None:
        weight, bias = self.conv.weight, self.conv.bias
        weight.copy_(torch.cat([filters, -filters]).view(weight.shape))
        if bias is not None:
            bias.zero_()


def patch_covariance(images: Tensor, kernel: int) -> Tensor:
    """The covariance of all patches of images (N, C, H, W), in double precision."""
    total, products, count = torch.zeros(()), torch.zeros(()), 0
    # About the mean of each channel, or the difference of large numbers would be inexact.
    centre = images.mean((0, 2, 3), keepdim=True, dtype=torch.float64)
    for part in images.split(_AT_A_TIME):  # type: ignore[no-untyped-call]
        patches = F.unfold(part.double() - centre, kernel).transpose(0, 1).flatten(1)
        total, products = total + patches.sum(1), products + patches @ patches.T
        count += patches.shape[1]
    mean = total / count
    return products / count - mean.outer(mean)
