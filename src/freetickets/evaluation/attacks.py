"""Attacks: images changed a little, in pixels from 0 to 1, to mislead one member."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import LazySplit, Split
from ..errors import FreeTicketsError
from ..methods.members import MemberNetwork, evaluating
from ..predictions import Predictions
from ..seeds import derive

if TYPE_CHECKING:
    from .sets import Predictor

Floats = Sequence[float]

ATTACKS = ("fgsm", "pgd")
_SEED = 0  # of the random starts of PGD


def attack_predictions(
    predictor: "Predictor", info: dict[str, Any], split: Split | LazySplit, steps: int = 10
) -> Predictions:
    """Attacks each member in turn, and predicts each time with all of them.

    `info` says which `attack` it is, and its `epsilon`. FGSM is one step of epsilon along the sign
    of the gradient; PGD are several from a random start, of 2.5 epsilon / steps, which reaches any
    edge from any start. Members that share a network are attacked by their own outputs.

    Returns:
        The members' predictions of one attack behind the other: part k is what they say of the
        images made to mislead member k.
    """
    ensemble, batch_size, epsilon = predictor.ensemble, predictor.batch_size, info["epsilon"]
    is_pgd = info["attack"] == "pgd"
    steps, step_size = (steps, 2.5 * epsilon / steps) if is_pgd else (1, epsilon)
    sources = [
        (network, member)
        for network in ensemble.networks
        for member in range(network.members if isinstance(network, MemberNetwork) else 1)
    ]
    mean, std = ensemble.info["mean"], ensemble.info["std"]
    found: list[list[np.ndarray]] = [[] for _ in sources]
    first = 0
    for pixels in ensemble.batches(split, batch_size, normalised=False):
        labels = split.labels[first : first + len(pixels)].to(pixels.device)
        for (network, member), parts in zip(sources, found, strict=True):
            changed = perturb(
                network, pixels, labels, epsilon, mean, std, steps=steps, step_size=step_size,
                random_start=is_pgd, member=member, seed=_SEED, first=first,
            )  # fmt: skip
            inputs = _normalise(changed, mean, std).cpu()
            parts.append(predictor.fast.member_log_proba(inputs, batch_size).astype(np.float32))
            predictor.progress.advance(len(pixels))
        first += len(pixels)
    names = [str(number) for number in range(1, len(sources) + 1)]
    how = {"steps": steps, "step_size": float(step_size), "seed": _SEED, "parts": names}
    log_probs = np.concatenate([part for parts in found for part in parts], axis=1)
    truth = np.tile(split.labels.numpy(), len(sources))
    predictions = Predictions(log_probs, truth, {**how, **info, **predictor.info})
    return predictions.adjusted(range(len(ensemble)), ensemble.temperature)


def perturb(
    model: nn.Module, x: Tensor, y: Tensor, epsilon: float = 8 / 255, mean: Floats = (),
    std: Floats = (), *, steps: int = 1, step_size: float | None = None, random_start: bool = False,
    member: int = 0, seed: int = 0, first: int = 0,
) -> Tensor:  # fmt: skip
    """Changes images so that any model errs: FGSM as it stands, PGD with more steps.

    The model returns scores (N, classes), or (M, N, classes) of several members, of which `member`
    is misled; it is used in evaluation mode and left as it was. Images `x` (N, C, H, W) have pixels
    in [0, 1], which `mean` and `std` normalise for the model. A random start depends on `seed` and
    on the index of the image, which `first` says of the first, and on nothing else.

    Returns:
        Images of the same shape, within epsilon of `x` and within [0, 1].
    """
    if not 0 <= epsilon <= 1:
        raise FreeTicketsError(
            f"epsilon is a share of a pixel's range: give 8/255 instead of {epsilon:g}"
        )
    if steps < 1:
        raise FreeTicketsError(f"an attack takes at least 1 step, not {steps}")
    if not x.is_floating_point() or x.min() < 0 or x.max() > 1:
        raise FreeTicketsError("attacks take images with pixels in [0, 1]: divide uint8 by 255")
    size = epsilon if step_size is None else step_size
    lowest, highest = (x - epsilon).clamp(0, 1), (x + epsilon).clamp(0, 1)
    changed = x
    if random_start:
        changed = (x + epsilon * _noise(x, seed, first)).clamp(0, 1)
    for _ in range(steps):
        uphill = loss_gradient(model, changed, y, mean, std, member).sign()
        changed = (changed + size * uphill).clamp(lowest, highest)
    return changed


def loss_gradient(
    model: nn.Module, x: Tensor, y: Tensor, mean: Floats = (), std: Floats = (), member: int = 0
) -> Tensor:
    """The gradient of each image's cross-entropy with respect to its pixels; see `perturb`."""
    pixels = x.detach().clone().requires_grad_()
    with torch.enable_grad(), evaluating(model):
        logits = model(_normalise(pixels, mean, std))
        if logits.dim() == 3:
            logits = logits[member]
        # In float32 the loss of a right answer that is sure rounds to 0, and its gradient with it.
        loss = F.cross_entropy(logits.double(), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, pixels)
    return gradient


def _noise(x: Tensor, seed: int, first: int) -> Tensor:
    """Uniform in [-1, 1], the same for an image whatever the batch is."""
    draws = [
        torch.rand(x.shape[1:], generator=torch.Generator().manual_seed(derive(seed, "attack", i)))
        for i in range(first, first + len(x))
    ]
    return (2 * torch.stack(draws) - 1).to(x)


def _normalise(pixels: Tensor, mean: Floats, std: Floats) -> Tensor:
    for values, change in ((mean, torch.sub), (std, torch.div)):
        if len(values):
            each = torch.tensor(values, dtype=pixels.dtype, device=pixels.device)
            pixels = change(pixels, each.view(-1, 1, 1))
    return pixels
