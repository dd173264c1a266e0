"""The sections of a comparison, one subject a file, in the order of the page.

Every maker takes a `Comparison` and yields its sections; those without data are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..comparison import Comparison
from ..parts import Figure, Folded, Section, Table
from . import diversity, main, members, robustness, training, uncertainty

Maker = Callable[[Comparison], Iterable[Section]]

# By chapter, and by the key of the section, or what keys of several begin with.
SECTIONS: dict[str, dict[str, Maker]] = {
    "Results": {
        "main": main.main_section,
        "cost": main.cost_section,
        "differences": main.differences_section,
        "intervals": main.intervals_section,
        "more": main.more_section,
    },
    "Members and ensemble": {
        "members": members.members_section,
        "member-scores": members.member_scores_section,
        "ensemble-size": members.sizes_section,
        "sparsity": members.sparsity_section,
        "correlations": members.correlation_section,
    },
    "Diversity": {
        "diversity": diversity.diversity_section,
        "disagreement": diversity.heatmaps_section,
        "classes": diversity.classes_section,
        "features": diversity.features_section,
        "trajectories": diversity.trajectories_section,
    },
    "Robustness": {
        "corruptions": robustness.corruptions_section,
        "severity": robustness.severity_section,
        "corruption-types": robustness.types_section,
        "corruption-scores": robustness.corruption_scores_section,
        "natural": robustness.natural_section,
        "attacks": robustness.attacks_section,
        "attack": robustness.attack_bars_sections,
        "transfer": robustness.transfer_sections,
    },
    "Uncertainty": {
        "scores": uncertainty.more_section,
        "reliability": uncertainty.reliability_section,
        "risk-coverage": uncertainty.risk_section,
        "ood": uncertainty.unknown_section,
        "roc": uncertainty.roc_section,
        "novelty": uncertainty.histograms_section,
    },
    "Training": {
        "training": training.training_sections,
        "layers": training.layers_section,
        "phases": training.phases_section,
        "settings": training.settings_section,
    },
}


def make_all(comparison: Comparison) -> list[Section]:
    """All sections that the runs have data for, with their chapters."""
    return [
        replace(section, chapter=chapter)
        for chapter, makers in SECTIONS.items()
        for maker in makers.values()
        for section in maker(comparison)
        if _has_content(section)
    ]


def make(comparison: Comparison, key: str) -> Section | None:
    """The section of a key, such as "cost" or "attack-fgsm"; None if the runs have no data for it.

    Raises:
        KeyError: No section has such a key.
    """
    makers = {name: maker for chapter in SECTIONS.values() for name, maker in chapter.items()}
    maker = makers[key if key in makers else key.partition("-")[0]]
    found = (section for section in maker(comparison) if section.key == key)
    return next(filter(_has_content, found), None)


def _has_content(section: Section) -> bool:
    body = section.body.body if isinstance(section.body, Folded) else section.body
    if isinstance(body, Table):
        return bool(body.rows)
    return bool(body.panels) if isinstance(body, Figure) else True
