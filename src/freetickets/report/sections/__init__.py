"""The sections of a comparison, in the order of the page.

Every maker takes a `Comparison` and yields its sections; those without data are left out. A section
without a key has that of its maker: `member_scores` makes "member-scores".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ..comparison import Comparison
from ..parts import Figure, Folded, Section, Table
from . import main, members, robustness

Maker = Callable[[Comparison], Iterable[Section]]

_MAKERS: dict[str, tuple[Maker, ...]] = {
    "Results": (main.main, main.cost, main.differences, main.intervals, main.more),
    "Members and ensemble": (
        *(members.members, members.member_scores, members.ensemble_size),
        *(members.sparsity, members.correlations),
    ),
    "Diversity": (
        *(members.diversity, members.disagreement, members.classes),
        *(members.features, members.trajectories),
    ),
    "Robustness": (
        *(robustness.corruptions, robustness.severity, robustness.corruption_types),
        *(robustness.corruption_scores, robustness.natural),
        *(robustness.attacks, robustness.attack, robustness.transfer),
    ),
    "Uncertainty": (
        *(robustness.scores, robustness.reliability, robustness.risk_coverage),
        *(robustness.ood, robustness.roc, robustness.novelty),
    ),
    "Training": (main.training, main.layers, main.phases, main.settings),
}

# By chapter, and by the key of the section, or what keys of several begin with.
SECTIONS: dict[str, dict[str, Maker]] = {
    chapter: {maker.__name__.replace("_", "-"): maker for maker in makers}
    for chapter, makers in _MAKERS.items()
}


def make_all(comparison: Comparison) -> list[Section]:
    """All sections that the runs have data for, with their chapters."""
    return [
        replace(section, chapter=chapter)
        for chapter, makers in SECTIONS.items()
        for key, maker in makers.items()
        for section in _made(comparison, key, maker)
    ]


def make(comparison: Comparison, key: str) -> Section | None:
    """The section of a key, such as "cost" or "attack-fgsm"; None if the runs have no data for it.

    Raises:
        KeyError: No section has such a key.
    """
    makers = {name: maker for chapter in SECTIONS.values() for name, maker in chapter.items()}
    of = key if key in makers else key.partition("-")[0]
    return next((it for it in _made(comparison, of, makers[of]) if it.key == key), None)


def _made(comparison: Comparison, name: str, maker: Maker) -> Iterator[Section]:
    """The sections of a maker that have content, with their keys, by which figures are saved."""
    for section in maker(comparison):
        key, body = section.key or name, section.body
        shown = body.body if isinstance(body, Folded) else body
        if isinstance(shown, Table) and not shown.rows:
            continue
        if isinstance(body, Figure):
            if not body.panels:
                continue
            body = replace(body, name=key)
        yield replace(section, key=key, body=body)
