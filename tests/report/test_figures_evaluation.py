"""The figures of the evaluation: they show the numbers that they are given, and nothing else."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from freetickets import metrics
from freetickets.report.comparison import EnsembleCurve, Unfamiliar
from freetickets.report.figures import breakdowns, scores
from freetickets.report.figures.breakdowns import class_breakdown, layer_densities
from freetickets.report.figures.drawing import PALETTE, SERIES
from freetickets.report.figures.points import trajectories
from freetickets.report.figures.scores import attack_bars, risk_curves, roc_curves, size_curves
from freetickets.tasks import CLASSIFICATION

from .svg import SVG, assert_sound, texts

ACCURACY, NLL, _ = CLASSIFICATION.scores
NAN = math.nan


def marks(svg, shade):
    """How many marks of a colour are drawn."""
    return sum(
        max(1, len(element.findall(f"{SVG}use")))
        for element in ElementTree.fromstring(svg).iter()
        if element.tag in (f"{SVG}use", f"{SVG}g")
        and f"fill: var(--{shade}," in element.get("style", "")
    )


def opacities(svg):
    return [float(number) for number in re.findall(r"fill-opacity: ([\d.]+)", svg)]


def reliability(accuracy):
    edges = np.linspace(0, 1, len(accuracy) + 1)
    return SimpleNamespace(
        edges=edges,
        count=np.where(np.isnan(accuracy), 0, 10),
        confidence=np.where(np.isnan(accuracy), NAN, (edges[1:] + edges[:-1]) / 2),
        accuracy=np.asarray(accuracy),
        ece=0.0312,
    )


def attack(clean, low, mean, high):
    return SimpleNamespace(clean=clean, min=low, mean=mean, max=high)


def roc(points=1000, power=0.2):
    x = np.linspace(0, 1, points)
    return unknown(roc=metrics.Roc(x, x**power), auroc=1 / (1 + power))


def unknown(inside=(), outside=(), roc=None, auroc=0.5):
    return Unfamiliar(np.array(inside), np.array(outside), roc, auroc)


def risk(samples=1000, seed=0):
    errors = np.random.default_rng(seed).random(samples) < 0.2
    coverage = np.arange(1, samples + 1) / samples
    curve = errors.cumsum() / np.arange(1, samples + 1)
    return SimpleNamespace(coverage=coverage, risk=curve, area=float(curve.mean()))


def path(label, checkpoints=5, seed=0):
    collected = np.zeros(checkpoints, bool)
    collected[-1:] = True
    return SimpleNamespace(
        label=label,
        points=np.random.default_rng(seed).normal(size=(checkpoints, 2)),
        epochs=np.arange(checkpoints),
        collected=collected,
    )


def all_panels(names, members=3, classes=10, layers=20, types=3, fill=None, only=None):
    """Every figure of some runs, or only some of them; `fill` stands in for all numbers."""
    rng = np.random.default_rng(0)

    def values(*shape):
        return rng.uniform(0.1, 0.9, shape) if fill is None else np.full(shape, fill)

    def by_layer():
        return [(f"stages.{number}.conv", value) for number, value in enumerate(values(layers))]

    def sizes():
        return EnsembleCurve(np.arange(1, members + 1), *(values(members) for _ in range(4)))

    severities = (1, 2, 3, 4, 5)
    kinds = [f"type_{number}" for number in range(types)]
    labels = [f"class {number}" for number in range(classes)]
    paths = [path(f"ticket {number}", 60, number) for number in range(members)]
    # How each is drawn, of what for each run.
    figures = {
        "reliability": (scores.reliability_diagrams, lambda: reliability(values(15))),
        "disagreement": (breakdowns.disagreement_heatmaps, lambda: values(members, members)),
        "transfer": (lambda it: breakdowns.transfer_heatmaps(it, "FGSM"),
                     lambda: values(members, members)),
        "classes": (lambda it: class_breakdown(labels, it),
                    lambda: {"accuracy": values(classes), "disagreement": values(classes)}),
        "roc": (lambda it: roc_curves({"svhn": it}), roc),
        "novelty": (lambda it: scores.novelty_histograms({"svhn": it}),
                    lambda: unknown(values(99), values(50))),
        "corruptions": (lambda it: breakdowns.corruption_heatmaps(it, ACCURACY),
                        lambda: (kinds, severities, values(types, 5))),
        "severity": (lambda it: scores.severity_curves(severities, it),
                     lambda: {key: values(5) for key in ("accuracy", "nll", "ece")}),
        "attacks": (lambda it: attack_bars(it, "FGSM"), lambda: attack(*values(4).tolist())),
        "features": (breakdowns.feature_curves, by_layer),
        "densities": (layer_densities, by_layer),
        "trajectories": (trajectories, lambda: paths),
        "size": (size_curves, sizes),
        "sparsity": (scores.sparsity_curves,
                     lambda: EnsembleCurve([0.5, 0.8], values(2), values(2), kl=values(2))),
        "risk": (risk_curves, risk),
    }  # fmt: skip
    drawn = {key: figures[key] for key in only or figures}
    return {key: draw({name: make() for name in names}) for key, (draw, make) in drawn.items()}


def test_panels_are_sound_and_no_runs_give_none():
    assert_sound([panel for drawn in all_panels(["edst", "dense"]).values() for panel in drawn])
    assert not any(all_panels([]).values())


def test_any_name_can_be_drawn():
    names = ["$x_1$", "<b>&amp;", "模型", 'a"b', "_hidden", "^_\\", "a\0b"]
    shown = [name.replace("\0", "\N{REPLACEMENT CHARACTER}") for name in names]
    for figure, drawn in all_panels(
        names, members=2, layers=3, only=("disagreement", "roc", "attacks", "trajectories")
    ).items():
        written = [text for panel in drawn for text in texts(panel)]
        for name in shown:
            assert any(text.startswith(name) for text in written), (figure, name)


@pytest.mark.parametrize("fill", [NAN, math.inf, 0.0])
def test_numbers_that_are_not_finite_or_all_equal_draw_no_nonsense(fill):
    for figure, drawn in all_panels(["a"], members=2, layers=3, types=1, fill=fill).items():
        for panel in drawn:
            ElementTree.fromstring(panel)
            assert not re.search(r'[ "](nan|-?inf)[ "]', panel), figure


def test_panels_of_many_runs_and_members_stay_small():
    for runs, only in (
        (12, ("classes", "roc", "novelty", "features", "densities", "size", "risk")),
        (1, ("disagreement", "transfer", "corruptions", "trajectories")),
    ):
        names = [f"run {number}" for number in range(runs)]
        drawn = all_panels(names, members=20, classes=100, layers=60, types=19, only=only)
        sizes = {figure: max(map(len, panels)) for figure, panels in drawn.items()}
        assert {figure: size for figure, size in sizes.items() if size > 100_000} == {}


def test_a_reliability_diagram_shows_the_given_ece_and_no_bars_for_empty_bins():
    full, sparse = scores.reliability_diagrams(
        {"a": reliability([0.1, 0.4, 0.6, 0.8]), "b": reliability([NAN, NAN, 0.6, 0.8])}
    )
    assert "ECE 0.0312" in texts(full)
    # A bar and a gap a bin, and the patch of the legend.
    assert len(opacities(full)) == 2 * 4 + 1
    assert len(opacities(sparse)) == 2 * 2 + 1


def test_heat_maps_share_a_scale_and_show_the_numbers_of_up_to_12_members():
    alone = {"dense": np.zeros((1, 1))}  # it disagrees with nobody
    (panel,) = breakdowns.disagreement_heatmaps({"a": [[0, 0.0312], [0.25, 0]], **alone})
    shown = [text for text in texts(panel) if text in ("0", "0.031", "0.250")]
    assert shown == ["0", "0.031", "0.250", "0"]
    assert len(breakdowns.transfer_heatmaps(alone, "FGSM")) == 1
    maps = {"a": (["gaussian_noise", "fog"], [1, 2], [[0.9, 0.8], [0.7, 0.625]])}
    (panel,) = breakdowns.corruption_heatmaps(maps, ACCURACY)
    assert {"gaussian noise", "fog", "1", "2", "90.0", "80.0", "70.0", "62.5"} <= set(texts(panel))
    (panel,) = breakdowns.corruption_heatmaps({"a": (["fog"], [1, 2], [[0.25, 12.34]])}, NLL)
    assert {"0.250", "12.3"} <= set(texts(panel))
    assert [breakdowns.write_decimals(each) for each in (1e-5, 9.999)] == ["1e-05", "9.999"]
    assert breakdowns.write_share(1.0) == "100"
    panels = breakdowns.disagreement_heatmaps(
        {"a": np.full((6, 6), 0.1), "b": np.full((6, 6), 0.2)}
    )
    assert opacities(panels[0]) == pytest.approx([0.04 + 0.46 / 2] * 36)
    assert opacities(panels[1]) == [0.5] * 36
    maps = {name: (["fog"], [1], [[value]]) for name, value in zip("abc", (0, 0.5, 1), strict=True)}
    found = [opacities(panel) for panel in breakdowns.corruption_heatmaps(maps, ACCURACY)]
    assert found == [[0.04], [pytest.approx(0.04 + 0.46 / 2)], [0.5]]
    matrix = np.random.default_rng(0).uniform(0.1, 0.3, (13, 13))
    matrix[0, 0] = 0.312
    (panel,) = breakdowns.disagreement_heatmaps({"a": matrix})
    assert [text for text in texts(panel) if "." in text] == ["0.312"]
    (numbered,) = breakdowns.disagreement_heatmaps({"a": matrix[:12, :12]})
    assert len([text for text in texts(numbered) if "." in text]) == 12 * 12


X_AND_Y = [("x", 0.1), ("y", 0.2)]
NOVEL = {"a": unknown([0.1, 0.2], [0.8, 0.9]), "b": unknown([0.1], [NAN])}


def test_each_panel_names_what_it_shows():
    for panels, shown in (
        (  # cells of unknown value stay empty
            lambda: breakdowns.transfer_heatmaps({"a": [[0.5, NAN], [0.25, 0.125]]}, "FGSM"),
            [{"50.0", "25.0", "12.5", "–", "accuracy (%) under FGSM"}],
        ),
        (
            lambda: scores.novelty_histograms({"svhn": NOVEL, "noise": NOVEL}),
            [{name, "a", "b", "novelty (higher is more unknown)"} for name in ("svhn", "noise")],
        ),
        (
            lambda: attack_bars(
                {"a": attack(0.95, 0.301, 0.35, 0.4), "b": attack(0.9, NAN, NAN, NAN)}, "FGSM"
            ),
            [{"a  95.0% → 35.0% (30.1–40.0)", "b  90.0% → ?% (?–?)", "accuracy under FGSM"}],
        ),
        (  # runs of equal densities share a line
            lambda: layer_densities({"a": X_AND_Y, "b": X_AND_Y, "c": [("x", 1.0), ("y", 1.0)]}),
            [{"a = b", "c"}],
        ),
    ):
        for panel, words in zip(panels(), shown, strict=True):
            assert words <= set(texts(panel))


def test_ten_classes_are_all_shown_and_of_100_those_that_differ_most_or_are_hardest():
    names = [f"class {number}" for number in range(10)]
    both = {"accuracy": np.full(10, 0.6), "disagreement": np.full(10, 0.1)}
    runs = {"a": {"accuracy": np.full(10, 0.5)}, "b": both}
    accuracy, disagreement = class_breakdown(names, runs)
    assert set(names) <= set(texts(accuracy))
    # One more in the legend.
    assert marks(accuracy, "blue") == marks(accuracy, "vermillion") == 11
    assert marks(disagreement, "blue") == 0
    assert marks(disagreement, "vermillion") == 11
    names = [f"class {number}" for number in range(100)]
    other = {"accuracy": 0.5 + np.where(np.arange(100) % 5 == 2, 0.2, 0.0)}
    (panel,) = class_breakdown(names, {"a": {"accuracy": np.full(100, 0.5)}, "b": other})
    assert [text for text in texts(panel) if text.startswith("class ")] == names[2::5]
    assert "20 of 100 classes: those on which the runs differ most" in texts(panel)
    (panel,) = class_breakdown(names, {"a": {"accuracy": np.arange(100) / 100}})
    assert [text for text in texts(panel) if text.startswith("class ")] == names[:20]


def test_curves_state_the_given_areas_and_have_a_mark_a_severity():
    (panel,) = roc_curves({"svhn": {"a": replace(roc(50_000), auroc=0.91234)}})
    assert {"a 0.9123", "svhn"} <= set(texts(panel))
    assert len(panel) < 20_000
    curve = risk(10_000)
    (panel,) = risk_curves({"a": curve})
    assert f"a {curve.area:.4f}" in texts(panel)
    assert len(panel) < 20_000
    curves = {"a": {"accuracy": [0.9, 0.8, NAN], "nll": [0.1, 0.2, 0.3]}, "b": {"nll": [1, 2, 3]}}
    accuracy, nll = scores.severity_curves([1, 2, 3], curves)
    assert marks(accuracy, "blue") == 2 + 1
    assert "b" not in texts(accuracy)
    assert marks(nll, "vermillion") == 3 + 1


def test_runs_of_other_layers_get_a_panel_and_layers_are_named_as_far_as_there_is_room():
    curves = {"a": [("x", 0.1), ("y", 0.2)], "b": [("x", 0.3), ("y", 0.2)], "c": [("z", 1.0)]}
    first, second = breakdowns.feature_curves(curves)
    assert {"x", "y", "a", "b"} <= set(texts(first))
    assert {"z", "c"} <= set(texts(second))
    assert "a" not in texts(second)
    assert len(layer_densities(curves)) == 2
    layers = [(f"stages.{number}.blocks.0.conv", 0.5) for number in range(60)]
    (panel,) = layer_densities({"a": layers})
    named = [text for text in texts(panel) if text.endswith("conv")]
    assert 15 < len(named) < 30
    assert "layer, from input to output (1 in 3 named)" in texts(panel)


def test_paths_are_named_start_hollow_and_end_in_a_diamond():
    (panel,) = trajectories({"edst": [path("ticket 1"), path("ticket 2", seed=1)]})
    assert {"edst", "ticket 1", "ticket 2", "start", "ticket"} <= set(texts(panel))
    # Two starts and the one of the legend; four dots and a diamond a path.
    assert marks(panel, "page") == 3
    assert marks(panel, "blue") == marks(panel, "vermillion") == 4 + 1


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_short_paths_can_be_drawn(checkpoints):
    (panel,) = trajectories({"edst": [path("ticket 1", checkpoints)]})
    assert ("ticket 1" in texts(panel)) == (checkpoints > 0)


def test_curves_of_sizes_and_sparsities_have_a_mark_a_point_and_run_from_left_to_right():
    alone, kl = [0.7, 0.7, 0.7], [NAN, 0.1, 0.2]
    curve = EnsembleCurve([1, 2, 3], [0.7, 0.8, 0.9], alone, [0.5, 0.4, 0.3], kl)
    accuracy, nll = size_curves({"a": curve})
    # Three of the ensemble, two divergences, and one in the legend; members are hollow.
    assert marks(accuracy, "blue") == 3 + 2 + 1
    assert marks(accuracy, "page") == 3
    assert "KL" in texts(accuracy)
    assert marks(nll, "blue") == 3 + 1
    without = EnsembleCurve([1], [0.7], [0.7], [0.5])
    assert "KL" not in texts(size_curves({"a": without})[0])
    columns = np.array([[0.5, 0.8, 0.9], [0.9, 0.8, 0.7], [0.8, 0.7, 0.6]])
    one, other = (EnsembleCurve(*columns[:, order]) for order in ([0, 1, 2], [2, 0, 1]))
    assert scores.sparsity_curves({"a": one}) == scores.sparsity_curves({"a": other})


def test_numbers_and_runs_have_colours_of_their_own_that_can_be_read():
    (panel,) = breakdowns.disagreement_heatmaps({"a": [[0, 0.1], [0.25, 0]]})
    for dark in (False, True):
        page, text, blue = (shade(name, dark) for name in ("page", "text", "blue"))
        for opacity in opacities(panel):
            assert contrast(text, opacity * blue + (1 - opacity) * page) >= 4.5
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)
    (panel,) = attack_bars({"b": attack(0.9, 0.3, 0.4, 0.5)}, what="FGSM", runs=["a", "b"])
    assert "var(--vermillion," in panel
    assert "var(--blue," not in panel


def test_few_members_stand_two_in_a_panel_whatever_other_runs_have():
    panels = breakdowns.disagreement_heatmaps(
        {"a": np.eye(3), "b": np.eye(7), "c": np.eye(2), "d": np.eye(4)}
    )
    names = [re.search('aria-label="([^"]*)"', panel)[1].partition("of ")[2] for panel in panels]
    assert names == ["a and c", "d", "b"]
    assert len(breakdowns.transfer_heatmaps({name: np.eye(5) for name in "abc"}, "FGSM")) == 2
    assert len(breakdowns.transfer_heatmaps({name: np.eye(6) for name in "abc"}, "FGSM")) == 3


def contrast(one, other):
    """Between two colours, red, green and blue from 0 to 1."""
    shades = []
    for channels in (one, other):
        dark, bright = channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        shades.append(np.where(channels <= 0.04045, dark, bright) @ [0.2126, 0.7152, 0.0722])
    return (max(shades) + 0.05) / (min(shades) + 0.05)


def shade(name, dark):
    """A colour of the palette, red, green and blue from 0 to 1."""
    return np.frombuffer(bytes.fromhex(PALETTE[name][dark][1:]), np.uint8) / 255


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("names", "least"), [(("text", "muted"), 4.5), (SERIES, 3.0)])
def test_text_and_series_stand_out_from_page_and_bands(dark, names, least):
    for name in names:
        for ground in ("page", "band"):
            assert contrast(shade(name, dark), shade(ground, dark)) >= least, (name, ground)
