"""The colours of the page and its figures, for light and dark screens.

Figures are drawn with the light colours, which `themed` then turns into CSS variables: one drawing
serves both. The series are told apart by people with any kind of colour vision (after Okabe and
Ito), at a contrast of at least 3:1 against either background.
"""

import re

PALETTE = {
    "page": ("#ffffff", "#15181c"),
    "text": ("#1c2024", "#e4e7ea"),
    "muted": ("#5c656e", "#9aa4ae"),
    "line": ("#d5dade", "#363d44"),
    "band": ("#f1f3f5", "#1f2429"),
    "blue": ("#0072b2", "#56b4e9"),
    "vermillion": ("#c85200", "#ff8f4d"),
    "green": ("#00825f", "#2cc79a"),
    "purple": ("#ad4f87", "#e29cc6"),
    "ochre": ("#a06c00", "#e6b23a"),
}

SERIES = ("blue", "vermillion", "green", "purple", "ochre")

_NAMES = {light: name for name, (light, _) in PALETTE.items()}


def colour(name: str) -> str:
    """The colour to draw with."""
    return PALETTE[name][0]


def series_colour(number: int) -> str:
    """The colour of a series, counted from 0; they repeat."""
    return colour(SERIES[number % len(SERIES)])


def css_variables(dark: bool) -> str:
    """The palette as CSS declarations."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in PALETTE.items())


def themed(style: str) -> str:
    """Turns the palette's colours in a CSS style into variables, with themselves as fallback.

    Example:
        >>> themed("fill: none; stroke: #0072b2")
        'fill: none; stroke: var(--blue, #0072b2)'
    """
    return re.sub(
        "#[0-9a-f]{6}",
        lambda found: f"var(--{_NAMES[found[0]]}, {found[0]})" if found[0] in _NAMES else found[0],
        style,
    )
