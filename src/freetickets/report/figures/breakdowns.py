"""Class by class, layer by layer, and cell by cell: lines, dots, and heat maps.

The cells of heat maps are of one colour, the more opaque the higher, with their numbers: opacity
lets the page's background through, so one drawing is right on light and dark pages.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...metrics.score import Score
from ...reading import printable
from . import drawing as draw
from .drawing import colour

MOST_CLASSES = 20

Layers = Sequence[tuple[str, float]]
_Line = tuple[draw.Series, draw.Floats]  # of a run: how it looks, and its values layer by layer
_MOST_NUMBERED = 12  # columns
_FEW = 5  # members; maps of so few stand two in a panel
# Numbers in the text's colour have a contrast of 4.5:1 against this much blue, light and dark.
_FAINTEST, _NUMBERED, _PLAIN = 0.04, 0.5, 0.95


class _Scale(NamedTuple):
    low: float
    high: float
    write: Callable[[float], str]

    def shade(self, value: float, strongest: float) -> tuple[str, float]:
        """The colour of a value; halfway where all values are equal."""
        span = self.high - self.low
        share = min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.5
        return colour("blue"), _FAINTEST + (strongest - _FAINTEST) * share


def _scale(
    arrays: Iterable[draw.Floats], write: Callable[[float], str], low: float | None = None
) -> _Scale:
    """From the least of all finite values, or from `low`, to the highest."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays] or [np.zeros(0)])
    if values.size == 0:
        return _Scale(0.0, 1.0, write)
    return _Scale(float(values.min()) if low is None else low, float(values.max()), write)


def write_decimals(value: float) -> str:
    """A number in four or five characters."""
    if value == 0 or abs(value) < 5e-4 or abs(value) >= 1000:
        return f"{value:.1g}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def write_share(value: float) -> str:
    """A share in per cent, without the sign."""
    return "100" if value == 1 else f"{100 * value:.1f}"


def corruption_heatmaps(
    maps: Mapping[str, tuple[Sequence[str], Sequence[int], ArrayLike]], score: Score
) -> list[str]:
    """One panel a run: types of corruption down, severities across; one scale for all runs."""
    panels: list[str] = []
    write = write_share if score.is_share else write_decimals
    scale = _scale([draw.finite(values) for _, _, values in maps.values()], write)
    for name, (types, severities, values) in maps.items():
        what = f"{score.name} of {name} by type of corruption and severity"
        with draw.panel(panels, "corruptions", what, 0.85 + 0.21 * len(types)) as (_, axes):
            rows = [draw.shorten(kind.replace("_", " "), 18) for kind in types]
            width = (72 * draw.WIDTH - 95) / max(1, len(severities))
            _paint_cells(axes, draw.finite(values), rows, list(map(str, severities)), scale, width)
            axes.set_xlabel(f"severity; cells: {score.name}{' (%)' if score.is_share else ''}")
            draw.title(axes, name)
    return panels


def disagreement_heatmaps(
    matrices: Mapping[str, ArrayLike], what: str = "prediction disagreement"
) -> list[str]:
    """How much member i (row) differs from j (column); one scale from 0 for all runs."""
    arrays = {name: draw.finite(matrix) for name, matrix in matrices.items()}
    arrays = {name: array for name, array in arrays.items() if len(array) > 1}
    scale = _scale(arrays.values(), write_decimals, low=0.0)
    return _pairs(arrays, what, scale, "member", "member")


def transfer_heatmaps(matrices: Mapping[str, ArrayLike], what: str) -> list[str]:
    """The accuracy of member m (column) on samples crafted on member k (row); one scale."""
    arrays = {name: draw.finite(matrix) for name, matrix in matrices.items()}
    scale, what = _scale(arrays.values(), write_share), f"accuracy (%) under {what}"
    return _pairs(arrays, what, scale, "crafted on member", "tested on member")


def _pairs(
    arrays: Mapping[str, draw.Floats], what: str, scale: _Scale, rows: str, columns: str
) -> list[str]:
    panels: list[str] = []
    labels = dict(zip(arrays, draw.shorten_all(list(arrays)), strict=True))
    few = [name for name, array in arrays.items() if len(array) <= _FEW]
    couples = [few[start : start + 2] for start in range(0, len(few), 2)]
    for names in [*couples, *([name] for name in arrays if name not in few)]:
        abreast = 2 if names[0] in few else 1
        keyed = len(arrays[names[0]]) > _MOST_NUMBERED
        height = draw.WIDTH / abreast + (0.85 if keyed else 0.5)
        title = f"{what} between members of {' and '.join(names)}"
        with draw.panel(panels, "pairs", title, height, ratios=()) as (figure,):
            figure.suptitle(what, x=0.02, ha="left", fontsize=draw.SMALL, color=colour("muted"))
            heights = [1, 0.04][: 1 + keyed]
            grid = figure.subplots(1 + keyed, abreast, squeeze=False, height_ratios=heights)
            for axes in grid[0, len(names) :]:
                axes.set_axis_off()
            for axes, name in zip(grid[0], names, strict=False):
                size = len(arrays[name])
                members = [str(number + 1) for number in range(size)]
                width = (72 * draw.WIDTH - 36 * abreast) / abreast / size
                _paint_cells(axes, arrays[name], members, members, scale, width)
                axes.set(aspect="equal", anchor="NW")
                axes.set_title(labels[name], loc="left", fontsize=draw.SMALL, fontweight="bold")
                axes.set_xlabel(columns, fontsize=draw.SMALL)
                axes.set_ylabel(rows, fontsize=draw.SMALL)
            if keyed:
                _paint_key(grid[1, 0], scale)
    return panels


def _paint_cells(
    axes: draw.Axes, values: draw.Floats, rows: Sequence[str], columns: Sequence[str],
    scale: _Scale, width: float,
) -> None:  # fmt: skip
    """Fills axes with the cells of a matrix; what is not finite, or has no room, is not written."""
    from matplotlib.patches import Rectangle

    size = draw.SMALL if width >= 24 else draw.SMALL - 1
    known = np.isfinite(values)
    numbers = None
    if len(columns) <= _MOST_NUMBERED:
        texts = [scale.write(value) for value in values[known]]
        # Where there is little room, without the zero before the point.
        for candidate in (texts, [text.removeprefix("0") or "0" for text in texts]):
            if max((draw.text_width(text, size) for text in candidate), default=0.0) <= width - 2:
                numbers = iter(candidate)
                break
    strongest = _PLAIN if numbers is None else _NUMBERED
    for (row, column), value in np.ndenumerate(values):
        is_known = bool(known[row, column])
        style: draw.Style = {"facecolor": (colour("blue"), 0.0), "edgecolor": colour("line")}
        if is_known:
            style = {"facecolor": scale.shade(value, strongest), "edgecolor": colour("page")}
        style |= {"linewidth": 0.8 if width > 8 else 0.2, "clip_on": False}
        cell = Rectangle((column - 0.5, row - 0.5), 1, 1, **style)
        # The axes' own extent is known; measuring each cell would take most of the time.
        axes.add_patch(cell).set_in_layout(False)
        if numbers is not None:
            text = next(numbers) if is_known else "–"
            number = axes.text(column, row, text, ha="center", va="center_baseline", size=size)
            number.set_in_layout(False)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    draw.hide_frame(axes)


def _paint_key(axes: draw.Axes, scale: _Scale) -> None:
    from matplotlib.patches import Rectangle

    for step, opacity in enumerate(np.linspace(_FAINTEST, _PLAIN, 10).tolist()):
        axes.add_patch(Rectangle((step, 0), 1, 1, facecolor=(colour("blue"), opacity), lw=0))
    axes.set(xlim=(0, 10), ylim=(0, 1), yticks=[])
    axes.set_xticks([0, 10], [scale.write(scale.low), scale.write(scale.high)])
    draw.hide_frame(axes)


def class_breakdown(
    classes: Sequence[str], scores: Mapping[str, Mapping[str, ArrayLike]], runs: Sequence[str] = ()
) -> list[str]:
    """A line a class, a dot a run: accuracies, disagreements; the most telling 20 classes."""
    panels: list[str] = []
    if not scores:
        return panels
    looks = draw.series(scores, runs)
    chosen = _choose(np.stack([draw.finite(score["accuracy"]) for score in scores.values()]))
    labels = draw.shorten_all([classes[number] for number in chosen], 16)
    lines = np.arange(len(labels))
    height = 0.75 + len(chosen) * max(0.2, 0.035 * len(scores))
    for what in ("accuracy", "disagreement"):
        values = {name: draw.finite(it[what]) for name, it in scores.items() if what in it}
        if not values:
            continue
        title = f"{what.capitalize()} of {len(values)} runs in each of {len(chosen)} classes"
        with draw.panel(panels, f"classes-{what}", title, height) as (figure, axes):
            # Runs that score the same would hide one another on one line.
            shifts = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else [0.0]
            size = 4.0 if len(values) < 8 else 3.2
            for shift, (name, value) in zip(shifts, values.items(), strict=True):
                style: draw.Style = {"color": looks[name].shade, "markersize": size, "mew": 0}
                axes.plot(value[chosen], lines + shift, looks[name].marker, **style)
            for line in lines[1::2]:
                axes.axhspan(line - 0.5, line + 0.5, color=colour("band"), linewidth=0, zorder=-1)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
            axes.set_yticks(lines, labels)
            axes.set(ylim=(len(labels) - 0.5, -0.5), xlabel=f"{what} by class")
            axes.margins(x=0.05)
            axes.locator_params(axis="x", nbins=6)
            draw.percent(axes.xaxis)
            if len(chosen) < len(classes):
                which = "on which the runs differ most" if len(scores) > 1 else "that are hardest"
                note = f"{len(chosen)} of {len(classes)} classes: those {which}"
                axes.set_title(note, loc="left", fontsize=draw.SMALL, color=colour("muted"))
            shown = [looks[name] for name in values]
            draw.legend(figure, [(look.handle() | {"linestyle": ""}, look.label) for look in shown])
    return panels


def _choose(accuracy: draw.Floats) -> list[int]:
    if accuracy.shape[1] <= MOST_CLASSES:
        return list(range(accuracy.shape[1]))
    low = np.where(np.isnan(accuracy), np.inf, accuracy).min(axis=0)
    high = np.where(np.isnan(accuracy), -np.inf, accuracy).max(axis=0)
    interest = high - low if len(accuracy) > 1 else -low
    return sorted(np.argsort(-interest, kind="stable")[:MOST_CLASSES].tolist())


def feature_curves(curves: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the KL between members' feature maps for each list of layers, input first."""

    def paint(axes: draw.Axes, lines: Sequence[_Line]) -> bool:
        has_marks = sum(values.size for _, values in lines) <= 250
        for look, values in lines:
            marks = {"marker": look.marker} if has_marks else {"linestyle": look.dash}
            axes.plot(values, color=look.shade, markersize=3.5, linewidth=1.3, **marks)
        positive = np.concatenate([values[values > 0] for _, values in lines])
        if positive.size and positive.max() > 100 * positive.min():
            draw.powers(axes)
        axes.set_ylabel("KL between members")
        return has_marks

    return _by_layers("features", "KL divergence of feature maps", curves, runs, paint)


def layer_densities(densities: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the share of active weights for each list of layers; equal runs share a line."""

    def paint(axes: draw.Axes, lines: Sequence[_Line]) -> bool:
        for look, values in lines:
            if len(lines) == 1:
                axes.bar(range(len(values)), values, 0.8, color=look.shade, linewidth=0)
            else:
                style = {"color": look.shade, "linestyle": look.dash, "linewidth": 1.5}
                axes.plot(values, drawstyle="steps-mid", **style)
        axes.set(ylim=(0, 1.03), ylabel="active weights")
        draw.percent(axes.yaxis)
        return False

    return _by_layers("densities", "Share of active weights", densities, runs, paint, merge=True)


def _by_layers(
    name: str, what: str, found: Mapping[str, Layers], runs: Sequence[str],
    paint: Callable[[draw.Axes, Sequence[_Line]], bool], merge: bool = False,
) -> list[str]:  # fmt: skip
    """A panel for each list of layers; `paint` says whether it drew marks, `merge` joins equals."""
    groups: dict[tuple[str, ...], list[_Line]] = {}
    for run, look in draw.series(found, runs).items():
        if found[run]:
            layers, values = zip(*found[run], strict=True)
            groups.setdefault(layers, []).append((look, draw.finite(values)))
    panels: list[str] = []
    for layers, lines in groups.items():
        if merge:
            lines = _merge(lines)
        names = [draw.shorten(printable(layer), 20, tail=19) for layer in layers]
        longest = max(draw.text_width(layer, draw.SMALL) for layer in names)
        room = 0.82 * draw.WIDTH * 72 / len(names)  # points along the axis for each name
        fits = longest < room - 3
        # Upright names need their height only.
        every = 1 if fits else math.ceil(1.25 * draw.SMALL / room)
        title = f"{what} in {len(layers)} layers of {', '.join(look.label for look, _ in lines)}"
        height = 2.6 + (draw.FONT_SIZE if fits else longest) / 72
        with draw.panel(panels, name, title, height) as (figure, axes):
            has_marks = paint(axes, lines)
            rotation = 0 if fits else 90
            axes.set_xticks(range(0, len(names), every), names[::every], rotation=rotation)
            axes.set_xlim(-0.6, len(names) - 0.4)
            axes.grid(visible=False, axis="x")
            note = f" (1 in {every} named)" if every > 1 else ""
            axes.set_xlabel(f"layer, from input to output{note}")
            draw.legend(figure, [(look.handle(has_marks), look.label) for look, _ in lines])
    return panels


def _merge(lines: Sequence[_Line]) -> list[_Line]:
    groups: dict[bytes, list[_Line]] = {}
    for look, values in lines:
        groups.setdefault(values.round(3).tobytes(), []).append((look, values))
    merged = []
    for (first, values), *others in groups.values():
        label = " = ".join([first.label, *(look.label for look, _ in others)])
        if len(label) > 40:
            label = f"{first.label} = {len(others)} others"
        merged.append((first._replace(label=label), values))
    return merged
