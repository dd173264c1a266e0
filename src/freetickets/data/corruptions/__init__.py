"""The 19 corruptions of CIFAR-C, five severities each, of anyone's small images.

NumPy, SciPy and Pillow make them, on first use: the command line asks here for the names alone. The
parameters are those of the published CIFAR sets (not of ImageNet-C, whose images are larger). What
is exact and what is not: docs/corruptions.md.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..._lazy import attach
from ...errors import FreeTicketsError, check_known

if TYPE_CHECKING:
    from .apply import corrupt as corrupt
    from .frost import find_frost as find_frost
    from .frost import frost_source as frost_source

# In the order of the published sets: these 15, then four that were meant for validation.
COMMON15 = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
CORRUPTIONS = (*COMMON15, "speckle_noise", "gaussian_blur", "spatter", "saturate")
SEVERITIES = (1, 2, 3, 4, 5)
_SETS = {"all19": CORRUPTIONS, "common15": COMMON15}


def check_corruption(name: str, severity: int) -> None:
    """Refuse a name or a severity that does not exist, and say which there are."""
    check_known("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise FreeTicketsError(f"severity {severity}: choose it from 1 to 5")


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return the corruptions that names of them and of sets mean, each once, in their own order."""
    wanted: set[str] = set()
    for name in names:
        check_known("corruption", name, [*_SETS, *CORRUPTIONS])
        wanted.update(_SETS.get(name, (name,)))
    return tuple(name for name in CORRUPTIONS if name in wanted)


def set_name(dataset: str) -> str:
    """The name of a data set's corrupted twin: the published one, or the data set's with -C."""
    published = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C", "imagenet": "ImageNet-C"}
    return published.get(dataset) or f"{Path(dataset).stem}-C"


__getattr__, __dir__, __all__ = attach(
    __name__, {"apply": "corrupt", "frost": "find_frost frost_source"}
)
__all__ += ["COMMON15", "CORRUPTIONS", "SEVERITIES"]
