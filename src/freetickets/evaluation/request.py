"""What an evaluation is asked for, beside the scores of the test set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The sets that are to be predicted.

    Attributes:
        corruptions: Names of corruption types, or of sets of them: all19, common15, ub.
        ood: Names of OoD sets, or paths of images.
        attacks: "fgsm", "pgd".
        epsilon: How far an attack may move a pixel, in [0, 1].
        features: Whether the members' feature maps are compared.
        imagenet_a: The folder of ImageNet-A.
        everything: All of it, as far as nothing has to be downloaded.
        samples: How many samples of each set, the first; None for all.
        resize: Whether OoD images of another shape are converted.
        fresh: Whether to predict what was saved, too.
    """

    corruptions: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    epsilon: float = 8 / 255
    features: bool = False
    imagenet_a: str | None = None
    everything: bool = False
    samples: int | None = None
    resize: bool = False
    fresh: bool = False

    @property
    def asks_for_more(self) -> bool:
        """Whether it asks for anything but the test set."""
        return bool(
            self.corruptions
            or self.ood
            or self.attacks
            or self.features
            or self.imagenet_a
            or self.everything
        )
