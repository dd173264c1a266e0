import pytest

from freetickets.report.colours import PALETTE, SERIES, css_variables


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("names", "least"), [(("text", "muted"), 4.5), (SERIES, 3.0)])
def test_text_and_series_stand_out_from_page_and_bands(dark, names, least):
    for name in names:
        for ground in ("page", "band"):
            assert contrast(PALETTE[name][dark], PALETTE[ground][dark]) >= least, (name, ground)


def test_a_colour_in_a_drawing_means_one_name_only():
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)


def test_both_themes_define_every_colour():
    for dark in (False, True):
        assert all(f"--{name}: {PALETTE[name][dark]};" in css_variables(dark) for name in PALETTE)
