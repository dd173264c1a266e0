"""Labels of points: where they stand so that none covers a point or another label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """The area that two rectangles share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        """Its size."""
        return (self.right - self.left) * (self.top - self.bottom)


def place_labels(
    points: Sequence[tuple[float, float]],
    widths: Sequence[float],
    height: float,
    frame: Box,
    obstacles: Sequence[tuple[float, float]] = (),
) -> list[Box]:
    """Finds a place beside each point for its label: right or left of it, as near as is free.

    Args:
        points: What is labelled.
        widths: Of the labels.
        height: Of every label.
        frame: What labels should not leave.
        obstacles: Further points that should not be covered.

    Example:
        >>> place_labels([(10, 50)], [30], 8, Box(0, 0, 100, 100))
        [Box(left=16, bottom=46.0, right=46, top=54.0)]
    """
    radius = 4
    taken = [Box(x - radius, y - radius, x + radius, y + radius) for x, y in (*points, *obstacles)]
    places: list[Box] = []
    for point, width in zip(points, widths, strict=True):
        place = min(
            _candidates(point, width, height),
            # The first of equals wins, and candidates come nearest first.
            key=lambda box: box.area - box.overlap(frame) + sum(map(box.overlap, taken)),
        )
        taken.append(place)
        places.append(place)
    return places


def _candidates(point: tuple[float, float], width: float, height: float) -> list[Box]:
    x, y = point
    gap = 6
    rises = sorted((height * step / 2 for step in range(-12, 13)), key=abs)
    return [
        Box(left, y + rise - height / 2, left + width, y + rise + height / 2)
        for rise in rises
        for left in (x + gap, x - gap - width)
    ]
