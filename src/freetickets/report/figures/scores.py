"""The scores that figures show, and how their axes are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...evaluation.results import TaskFacts
from ...tasks import CLASSIFICATION, Score

if TYPE_CHECKING:
    from matplotlib.axis import Axis


@dataclass(frozen=True)
class Quality:
    """A score as figures show it.

    Attributes:
        key: Its name in files.
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

    @classmethod
    def from_score(cls, score: Score) -> Quality:
        """A task's score, as figures show it."""
        way = "higher" if score.higher_is_better else "lower"
        return cls(
            score.key,
            score.name,
            f"{score.title} ({way} is better)",
            percent=score.form.endswith("%"),
            rising=score.higher_is_better,
        )

    def of(self, scores: Mapping[str, float]) -> float:
        """The value of this score."""
        return scores[self.key]

    def format_axis(self, axis: Axis) -> None:
        """Writes the axis of this score in its unit."""
        if self.percent:
            write_percent(axis)


ACCURACY, NLL, ECE = map(Quality.from_score, CLASSIFICATION.scores)


def qualities(task: TaskFacts) -> list[Quality]:
    """The scores of a task that figures show: the first two."""
    return list(map(Quality.from_score, task.scores[:2]))


def quality_of(key: str) -> Quality:
    """The score of a name; one that is not known is called by its name.

    Example:
        >>> quality_of("ece").label, quality_of("brier").label
        ('ECE (lower is better)', 'brier')
    """
    known = {quality.key: quality for quality in (ACCURACY, NLL, ECE)}
    return known.get(key, Quality(key, key, key))


def write_percent(axis: Axis) -> None:
    """Writes the shares along an axis in per cent."""
    axis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")
