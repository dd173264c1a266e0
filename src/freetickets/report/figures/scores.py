"""The scores that figures show, and how their axes are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...evaluation.results import Scores

if TYPE_CHECKING:
    from matplotlib.axis import Axis


@dataclass(frozen=True)
class Quality:
    """A score as figures show it.

    Attributes:
        key: The field of `Scores`.
        title: In running text.
        label: Along an axis.
        percent: Whether it is a share, written in per cent.
        rising: Whether higher is better.
    """

    key: str
    title: str
    label: str
    percent: bool = False
    rising: bool = False

    def of(self, scores: Scores) -> float:
        """The value of this score."""
        value: float = getattr(scores, self.key)
        return value

    def format_axis(self, axis: Axis) -> None:
        """Writes the axis of this score in its unit."""
        if self.percent:
            write_percent(axis)


QUALITIES = (
    Quality("accuracy", "accuracy", "accuracy (higher is better)", percent=True, rising=True),
    Quality("nll", "negative log-likelihood", "NLL (lower is better)"),
)
CALIBRATION = Quality("ece", "expected calibration error", "ECE (lower is better)")


def quality_of(key: str) -> Quality:
    """The score of a name; one that is not known is called by its name.

    Example:
        >>> quality_of("ece").label, quality_of("brier").label
        ('ECE (lower is better)', 'brier')
    """
    known = {quality.key: quality for quality in (*QUALITIES, CALIBRATION)}
    return known.get(key, Quality(key, key, key))


def write_percent(axis: Axis) -> None:
    """Writes the shares along an axis in per cent."""
    axis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")
