"""Labels of points: where to put them so that they cover neither points nor each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GAP = 6.0  # points between a point and its label


@dataclass(frozen=True)
class Box:
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, x: float, low: float, high: float, reach: float) -> Box:
        """What a mark covers that goes from (x, low) to (x, high) and reaches to all sides."""
        return cls(x - reach, low - reach, x + reach, high + reach)

    def overlap(self, other: Box) -> float:
        """The area that two rectangles share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def excess(self, frame: Box) -> float:
        """The area that lies outside a frame."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(frame)


def place_labels(
    points: Sequence[tuple[float, float]],
    widths: Sequence[float],
    height: float,
    frame: Box,
    obstacles: Sequence[Box] = (),
) -> list[Box]:
    """Finds a place for the label of each point: right or left of it, as near as is free.

    Args:
        points: What is labelled.
        widths: Of the labels.
        height: Of every label.
        frame: What labels should not leave.
        obstacles: What they should not cover.

    Example:
        >>> place_labels([(10, 50)], [30], 8, Box(0, 0, 100, 100))
        [Box(left=16.0, bottom=46.0, right=46.0, top=54.0)]
    """
    places: list[Box] = []
    for (x, y), width in zip(points, widths, strict=True):

        def cost(box: Box, y: float = y) -> float:
            # A label may rather cross a thin line than stand far from its point;
            # on another label neither can be read.
            distance = abs((box.bottom + box.top) / 2 - y)
            covered = sum(map(box.overlap, obstacles)) + 8 * sum(map(box.overlap, places))
            return 2 * distance + 4 * box.excess(frame) + covered

        place = min(_candidates(x, y, width, height), key=cost)
        places.append(place)
    return places


def _candidates(x: float, y: float, width: float, height: float) -> list[Box]:
    rises = [height * step / 4 for step in range(-16, 17)]
    return [
        Box(left, y + rise - height / 2, left + width, y + rise + height / 2)
        for rise in rises
        for left in (x + _GAP, x - _GAP - width)
    ]
