"""Labels of points: where to put them so that they cover neither points nor each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..colours import colour
from .drawing import FONT_SIZE, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

        candidates = [
            Box(left, y + rise - height / 2, left + width, y + rise + height / 2)
            for rise in (height * step / 4 for step in range(-16, 17))
            for left in (x + _GAP, x - _GAP - width)
        ]
        places.append(min(candidates, key=cost))
    return places


def name_points(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    size: float,
    line: float,
    obstacles: Callable[[], Sequence[Box]],
    leaders: bool = False,
) -> None:
    """Names points once the layout is settled, for only then is it known where they are.

    Args:
        figure: What is drawn.
        axes: Where the points are.
        points: In data coordinates.
        labels: Of the points.
        size: Of the text.
        line: The height of a label, in points.
        obstacles: Tells what labels should not cover; it is asked when the layout is settled.
        leaders: Whether a line leads to a label that stands above or below its point.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    places = [tuple(axes.transData.transform(point).tolist()) for point in points]
    frame = axes.get_window_extent()
    widths = [text_width(label, size) for label in labels]
    inside = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    boxes = place_labels(places, widths, line, inside, obstacles())
    for point, label, (x, y), box in zip(points, labels, places, boxes, strict=True):
        on_right = box.left > x
        rise = (box.bottom + box.top) / 2 - y
        leader: dict[str, Any] = {
            "arrowstyle": "-",
            "color": colour("muted"),
            "linewidth": 0.6,
            "relpos": (0 if on_right else 1, 0.5),
            "shrinkA": 0,
            "shrinkB": 4,
        }
        axes.annotate(
            label,
            point,
            ((box.left if on_right else box.right) - x, rise),
            textcoords="offset points",
            fontsize=size,
            ha="left" if on_right else "right",
            va="center_baseline",
            zorder=5,
            arrowprops=leader if leaders and abs(rise) > FONT_SIZE / 2 else None,
        )
