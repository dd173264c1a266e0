"""The sections of a comparison: `texts.yaml` says in which order, and what stands around them.

What has no data is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import resources
from statistics import fmean
from typing import Any

import yaml

from ...metrics.calibration import DEFAULT_BINS
from ..comparison import LEVEL, REPEATS, Comparison, each_part
from ..figures import breakdowns, scores
from ..parts import Figure, Folded, Section, Shown, Table
from . import makers

# Sections that are a figure and nothing else.
_FIGURES: dict[str, Callable[[Comparison], Sequence[str]]] = {
    "members": lambda it: scores.members_and_ensembles(it.runs),
    "ensemble-size": lambda it: scores.size_curves(each_part(it.analyses, "sizes"), it.names),
    "reliability": lambda it: scores.reliability_diagrams(
        each_part(it.analyses, "reliability"), it.names
    ),
    "risk-coverage": lambda it: scores.risk_curves(each_part(it.analyses, "risk"), it.names),
    "roc": lambda it: scores.roc_curves(makers.unfamiliar(it), it.names),
    "novelty": lambda it: scores.novelty_histograms(makers.unfamiliar(it), it.names),
    "layers": lambda it: breakdowns.layer_densities(
        {run: [(x.name, fmean(x.density)) for x in of.layers] for run, of in it.results.items()},
        it.names,
    ),
    "features": lambda it: breakdowns.feature_curves(
        {run: [(x.layer, x.kl) for x in of.features] for run, of in it.results.items()}, it.names
    ),
}

# By chapter and by key, which may be what the keys of several begin with.
SECTIONS: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(
    (resources.files(__package__) / "texts.yaml").read_text(encoding="utf-8")
)


def make_all(comparison: Comparison) -> list[Section]:
    """All sections that the runs have data for, with their chapters."""
    keys = [(chapter, key) for chapter, texts in SECTIONS.items() for key in texts]
    return [section for place in keys for section in _made(comparison, *place)]


def make(comparison: Comparison, key: str) -> Section | None:
    """The section of a key, such as "cost" or "attack-fgsm"; None if the runs have no data."""
    chapters = {name: chapter for chapter, texts in SECTIONS.items() for name in texts}
    of = key if key in chapters else key.partition("-")[0]
    return next((it for it in _made(comparison, chapters[of], of) if it.key == key), None)


def _made(comparison: Comparison, chapter: str, name: str) -> Iterator[Section]:
    """The sections of a maker that have content, with their keys, by which figures are saved."""
    text = SECTIONS[chapter][name]
    if name in _FIGURES:
        found: Iterable[Shown] = [Shown(Figure(_FIGURES[name](comparison)))]
    else:
        found = getattr(makers, name.replace("-", "_"))(comparison)
    results = comparison.runs[0].results
    shared: dict[str, Any] = {"samples": results.samples, "dataset": results.dataset}
    shared |= {"level": LEVEL, "repeats": REPEATS, "bins": DEFAULT_BINS}
    shared |= {"reference": comparison.reference.name, "flops": _flops_text(comparison)}
    for body, words, own in found:
        key, shown = own or name, body.body if isinstance(body, Folded) else body
        if isinstance(shown, Table) and not shown.rows:
            continue
        if isinstance(body, Figure):
            if not body.panels:
                continue
            body = replace(body, name=key)
        said = {
            word: value * text[word].format(**shared, **words) if isinstance(value, bool) else value
            for word, value in words.items()
        }
        title, caption = (text[part].format(**shared, **said) for part in ("title", "caption"))
        yield Section(title, caption, body, key, chapter)


def _flops_text(comparison: Comparison) -> str:
    """What FLOPs count, and what they are a multiple of."""
    counted = "FLOPs are counted as in RigL (3 × forward per sample, each layer by its density)"
    first = comparison.runs[0]
    # A product of fractions of epochs: its last digits depend on the plan.
    if len({f"{run.ledger.dense_flops:.6g}" for run in comparison.runs}) == 1:
        return (
            f"{counted}, as multiples of one dense training of {first.config.model} for "
            f"{first.ledger.dense_epochs:g} epochs ({first.ledger.dense_flops:.2g} FLOPs)."
        )
    return (
        f"{counted}, as multiples of one dense training of each run's own model and length; these "
        "differ here, so multiples of different runs can't be compared."
    )
