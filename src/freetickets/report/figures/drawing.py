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

STYLE = {
    "font.size": FONT_SIZE,
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": colour("text"),
    "text.parse_math": False,  # a run may be named "$x$"
    "axes.facecolor": "none",
    "axes.edgecolor": colour("muted"),
    "axes.labelcolor": colour("text"),
    "axes.labelsize": FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": colour("line"),
    "grid.linewidth": 0.6,
    "xtick.color": colour("muted"),
    "ytick.color": colour("muted"),
    "xtick.labelsize": FONT_SIZE - 1,
    "ytick.labelsize": FONT_SIZE - 1,
    "legend.frameon": False,
    "legend.fontsize": FONT_SIZE - 1,
    # Text stays text: small, searchable, and in the page's own font. DejaVu, in which it is laid
    # out, is wider than what browsers use, so what fits here fits there.
    "svg.fonttype": "none",
}


def draw(name: str, description: str, height: float, paint: Callable[[Figure], None]) -> str:
    """Draws a panel; equal input gives equal bytes.

    Args:
        name: Tells the panels of a page apart, together with the description.
        description: What it shows, for those who can't see it.
        height: In inches.
        paint: Draws on an empty figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
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


def shorten(name: str, length: int = 24) -> str:
    """A name cut to what a figure has room for.

    Example:
        >>> shorten("edst-cifar100-wrn-28-10-seed-0")
        'edst-cifar100-wrn-28-10…'
    """
    return name if len(name) <= length else name[: length - 1] + "…"


def shorten_all(names: Sequence[str], length: int = 24) -> list[str]:
    """Names cut to what a figure has room for, such that they still differ.

    Example:
        >>> shorten_all(["edst-cifar100-seed-0", "edst-cifar100-seed-1"], 12)
        ['edst-c…eed-0', 'edst-c…eed-1']
    """
    clean = [printable(name) for name in names]
    for cut in (shorten, shorten_inside, shorten_front):
        short = [cut(name, length) for name in clean]
        if len(set(short)) == len(set(names)):
            return short
    return [f"{number} {shorten(name, length - 4)}" for number, name in enumerate(clean, start=1)]


def shorten_inside(name: str, length: int = 24) -> str:
    """A name of which the middle is cut.

    Example:
        >>> shorten_inside("edst-cifar100-seed-0", 12)
        'edst-c…eed-0'
    """
    tail = (length - 1) // 2
    return name if len(name) <= length else name[: length - 1 - tail] + "…" + name[-tail:]


def shorten_front(name: str, length: int = 24) -> str:
    """A name of which the beginning is cut: what is left of a path, or of a layer's name.

    Example:
        >>> shorten_front("stages.3.blocks.2.conv2", 16)
        '….blocks.2.conv2'
    """
    return name if len(name) <= length else "…" + name[-(length - 1) :]


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
        for key in ("d", "x", "y", "width", "height", "transform"):
            if key in element.attrib:
                element.set(key, _rounded(" ".join(element.attrib[key].split())))
        if element.tag != "text":
            element.text = None
        element.tail = None
    for group in root.iter("g"):
        _share_style(group)
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": box,
            "role": "img",
            "aria-label": description,
            "stroke-linejoin": "round",
        }
    )
    return ElementTree.tostring(root, encoding="unicode")


def _share_style(group: ElementTree.Element) -> None:
    """Says once how the marks of a curve look; each inherits it."""
    styles = {mark.get("style") for mark in group}
    if len(group) > 1 and all(mark.tag == "use" for mark in group) and len(styles) == 1:
        for mark in group:
            group.set("style", mark.attrib.pop("style"))


def _rounded(numbers: str) -> str:
    """Numbers to a hundredth of a point, which nobody sees."""
    return re.sub(r"-?\d+\.\d{3,}", lambda found: f"{round(float(found[0]), 2):g}", numbers)
