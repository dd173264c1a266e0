"""Drawing: from matplotlib to an SVG that stands in a page and takes the page's colours."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ...errors import MissingExtraError
from ...reading import printable
from ..colours import colour, themed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.6  # inches; two panels fill a wide page, one a phone, with text of a size in both
FONT_SIZE = 9.0  # points
SMALL = FONT_SIZE - 1

STYLE = {
    **dict.fromkeys(("font.size", "axes.labelsize"), FONT_SIZE),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALL),
    **dict.fromkeys(("text.color", "axes.labelcolor"), colour("text")),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), colour("muted")),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "axes.facecolor": "none",
    "grid.color": colour("line"),
    "grid.linewidth": 0.6,
    "text.parse_math": False,  # a run may be named "$x$"
    # Text stays text: small, searchable, and in the page's own font. DejaVu, in which it is laid
    # out, is wider than what browsers use, so what fits here fits there.
    "font.sans-serif": ["DejaVu Sans"],
    "svg.fonttype": "none",
}


def draw(name: str, description: str, height: float, paint: Callable[[Figure], None]) -> str:
    """Draws a panel of a height in inches; equal input gives equal bytes.

    Name and description tell the panels of a page apart; the latter is for those who can't see it.
    """
    try:
        import matplotlib.style
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing figures", "report") from None

    # The user's own matplotlib settings would otherwise show through.
    description = printable(description)
    style: Any = ["default", {**STYLE, "svg.hashsalt": f"{name}: {description}"}]
    file = io.BytesIO()
    with matplotlib.style.context(style), warnings.catch_warnings():
        # A name in a script that DejaVu lacks: the browser has fonts of its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # The SVG backend counts 72 dots an inch: with the same here, dots are points throughout.
        figure = Figure((WIDTH, height), dpi=72, layout="constrained", facecolor="none")
        paint(figure)
        # Figure.savefig would draw everything twice.
        FigureCanvasSVG(figure).print_svg(file)  # type: ignore[no-untyped-call]
    return _inline(file.getvalue(), description)


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """About how many points a text takes: no less than most fonts need."""
    return 0.62 * size * len(text)


def shorten(name: str, length: int = 24, tail: int = 0) -> str:
    """A name cut to what a figure has room for; of its end so many signs are kept.

    Example:
        >>> shorten("edst-cifar100-seed-0", 12), shorten("edst-cifar100-seed-0", 12, tail=5)
        ('edst-cifar1…', 'edst-c…eed-0')
    """
    if len(name) <= length:
        return name
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"


def shorten_all(names: Sequence[str], length: int = 24) -> list[str]:
    """Names cut to what a figure has room for, such that they still differ.

    Example:
        >>> shorten_all(["edst-cifar100-seed-0", "edst-cifar100-seed-1"], 12)
        ['edst-c…eed-0', 'edst-c…eed-1']
    """
    clean = [printable(name) for name in names]
    for tail in (0, (length - 1) // 2, length - 1):
        short = [shorten(name, length, tail) for name in clean]
        if len(set(short)) == len(set(names)):
            return short
    return [f"{number} {shorten(name, length - 4)}" for number, name in enumerate(clean, start=1)]


def _inline(svg: bytes, description: str) -> str:
    """Cleans an SVG of what must not stand in a page: metadata, global styles, clashing names."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in list(element.attrib):
            element.set(key.rpartition("}")[2], element.attrib.pop(key))
    root.remove(root.findall("metadata")[0])
    root.remove(root.findall("defs")[0])
    for element in root.iter():
        # Only these are referred to, and their names are salted; "axes_1" is in every figure.
        if element.tag not in ("clipPath", "path"):
            element.attrib.pop("id", None)
        if "style" in element.attrib:
            element.set("style", themed(element.attrib["style"]))
        for key in {"d", "x", "y", "width", "height", "transform"} & element.attrib.keys():
            # To a hundredth of a point, which nobody sees.
            text = " ".join(element.attrib[key].split())
            rounded = re.sub(r"-?\d+\.\d{3,}", lambda it: f"{round(float(it[0]), 2):g}", text)
            element.set(key, rounded)
        if element.tag != "text":
            element.text = None
        element.tail = None
    for group in root.iter("g"):
        # Says once how the marks of a curve look; each inherits it.
        styles = {mark.get("style") for mark in group}
        if len(group) > 1 and all(mark.tag == "use" for mark in group) and len(styles) == 1:
            for mark in group:
                group.set("style", mark.attrib.pop("style"))
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "viewBox": box, "role": "img"}
    root.attrib |= {"aria-label": description, "stroke-linejoin": "round"}
    return ElementTree.tostring(root, encoding="unicode")
