"""The comparison of runs: the page that `freetickets report` writes."""

from __future__ import annotations

from collections.abc import Sequence

from .. import __version__
from .page import Page
from .run import RunSummary
from .sections import diversity, main, members, robustness, training, uncertainty
from .sections.comparison import Comparison

# In the order of the page. A section without data is left out.
SECTIONS = (
    main.main_section,
    main.cost_section,
    main.differences_section,
    main.intervals_section,
    main.more_section,
    members.members_section,
    members.member_scores_section,
    members.sizes_section,
    members.sparsity_section,
    members.correlation_section,
    diversity.diversity_section,
    diversity.heatmaps_section,
    diversity.classes_section,
    diversity.features_section,
    diversity.trajectories_section,
    robustness.corruptions_section,
    robustness.severity_section,
    robustness.types_section,
    robustness.corruption_scores_section,
    robustness.natural_section,
    robustness.attacks_section,
    robustness.attack_bars_section,
    robustness.transfer_section,
    uncertainty.more_section,
    uncertainty.reliability_section,
    uncertainty.risk_section,
    uncertainty.unknown_section,
    uncertainty.roc_section,
    uncertainty.histograms_section,
    training.training_sections,
    training.layers_section,
    training.phases_section,
    training.settings_section,
)


def comparison_page(runs: Sequence[RunSummary], reference: str | None = None) -> Page:
    """A page that shows runs side by side.

    Args:
        runs: As `read_runs` returns them.
        reference: The name or folder of the run that the others are compared with; by default the
            first single dense model, or the first run.

    Raises:
        MissingExtraError: Figures can't be drawn, for matplotlib is not installed.
    """
    comparison = Comparison.of(runs, reference)
    first = runs[0]
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    models = ", ".join(dict.fromkeys(run.config.model for run in runs))
    lead = f"{models}, scored on {first.samples:,} test samples."
    if not comparison.has_classes:
        lead += (
            f" The task, {first.task.name}, has no classes: confidence, diversity, corruptions, "
            "unknown samples and attacks, which are scored by classes, are left out."
        )
    return Page(
        f"{first.dataset}: {count}",
        f"{lead} Made by FreeTickets {__version__}.",
        [section for make in SECTIONS for section in make(comparison)],
    )
