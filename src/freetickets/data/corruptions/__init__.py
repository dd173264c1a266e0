"""The 19 corruptions of CIFAR-C, five severities each, of anyone's small images.

NumPy, SciPy and Pillow make them; the parameters are those of the published CIFAR sets (not of
ImageNet-C, whose images are larger). What is exact and what is not: docs/corruptions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import attach

if TYPE_CHECKING:
    from .apply import corrupt as corrupt
    from .frost import find_frost as find_frost
    from .frost import frost_source as frost_source
    from .names import COMMON15 as COMMON15
    from .names import CORRUPTIONS as CORRUPTIONS
    from .names import SEVERITIES as SEVERITIES

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "COMMON15": "names",
        "CORRUPTIONS": "names",
        "SEVERITIES": "names",
        "corrupt": "apply",
        "find_frost": "frost",
        "frost_source": "frost",
    },
)
