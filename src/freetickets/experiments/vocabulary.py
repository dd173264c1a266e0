"""The words that experiment files may use: columns, parts of a report, claims. No torch here."""

from __future__ import annotations

import re

# Numbers of a run: the columns of `freetickets.report`.
_RUN_COLUMNS = (
    "tickets",
    "sparsity",
    "member_accuracy",
    "member_nll",
    "member_ece",
    "accuracy",
    "nll",
    "ece",
    "c_accuracy",
    "c_nll",
    "c_ece",
    "c_ece_pooled",
    "a_accuracy",
    "a_nll",
    "a_ece",
    "train_flops",
    "growth_flops",
    "test_flops",
    "training_runs",
    "seconds",
    "ticket_mb",
)

# Numbers of metrics.json, by their path, and correlations over several runs.
_PATHS = (
    r"diversity\.(disagreement|kl|kl_one_way)",
    r"diversity\.disagreement_by_class\.\w+",
    r"ood\.[\w-]+\.(auroc|aupr|fpr95)",
    r"attacks\.(fgsm|pgd)\.(clean|min|mean|max)",
    r"correlation\.(pearson|spearman)",
)
_COLUMN = re.compile("|".join([*_RUN_COLUMNS, *_PATHS]))
_PERCENTAGE = re.compile(r"(member_|c_|a_)?accuracy|attacks\..*")

# Sections of a report, by their key.
PARTS = (
    "main",
    "cost",
    "members",
    "ensemble-size",
    "sparsity",
    "correlations",
    "diversity",
    "disagreement",
    "classes",
    "features",
    "trajectories",
    "reliability",
    "risk-coverage",
    "ood",
    "roc",
    "novelty",
    "corruptions",
    "severity",
    "corruption-types",
    "natural",
    "attacks",
    "attack-fgsm",
    "transfer-fgsm",
    "layers",
    "phases",
)

CLAIMS = {
    "ensembles-beat-dense": "EDST and DST ensembles beat the single dense model in accuracy and "
    "NLL",
    "dst-matches-dense-ensemble": "the DST ensemble is at least as good as the dense ensemble",
    "dst-beats-static": "DST beats static sparse training, member by member and as an ensemble",
    "diversity-order": "diversity: DST > static > EDST > LTR",
    "exploration-raises-diversity": "without exploration, EDST and DST are less diverse and less "
    "accurate",
    "edst-costs-less": "EDST costs less to train than one dense model",
    "ensembles-help-under-shift": "EDST and DST ensembles have a lower cNLL and cECE than the "
    "single dense model",
    "ensembles-help-ood": "ensembles tell unknown samples better than one of their members, and "
    "mostly than the single dense model",
    "ensembles-help-under-attack": "ensembles are more accurate under FGSM than one of their "
    "members",
    "members-and-ensemble-correlate": "the accuracies of members and ensemble correlate over "
    "sparsities",
    "size-helps-dst": "the accuracy of the DST ensemble grows with its size",
    "size-costs-edst-members": "in the same time, more tickets make worse members of EDST, and an "
    "ensemble that still beats the single dense model",
    "sparse-test-is-cheap": "DST and EDST ensembles are as accurate as Snapshot and FGE, and far "
    "cheaper to test",
    "escape-rate-raises-diversity": "a larger escape rate q makes EDST more diverse; the accuracy "
    "is best at q = 0.5",
    "growth-matters-little": "random and gradient growth differ little in EDST; random growth is "
    "better on CIFAR-100",
}


def is_column(name: str) -> bool:
    """Whether it is a number that a table can show.

    Example:
        >>> is_column("c_nll"), is_column("ood.svhn.auroc"), is_column("ood.svhn")
        (True, True, False)
    """
    return _COLUMN.fullmatch(name) is not None


def is_percentage(column: str) -> bool:
    """Whether the paper prints it in per cent; FreeTickets has shares.

    Example:
        >>> is_percentage("c_accuracy"), is_percentage("ood.svhn.auroc")
        (True, False)
    """
    return _PERCENTAGE.fullmatch(column) is not None
