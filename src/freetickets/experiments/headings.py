"""Headings: how the columns of tables are called, and how their numbers are written."""

from __future__ import annotations

from dataclasses import dataclass

from .vocabulary import is_percentage

_TITLES = {
    "tickets": "M",
    "sparsity": "S",
    "accuracy": "Acc",
    "nll": "NLL",
    "ece": "ECE",
    "member_accuracy": "member Acc",
    "member_nll": "member NLL",
    "member_ece": "member ECE",
    "c_accuracy": "cAcc",
    "c_nll": "cNLL",
    "c_ece": "cECE",
    "c_ece_pooled": "cECE pooled",
    "a_accuracy": "aAcc",
    "a_nll": "aNLL",
    "a_ece": "aECE",
    "train_flops": "training FLOPs",
    "growth_flops": "growth FLOPs",
    "test_flops": "test FLOPs",
    "training_runs": "runs",
    "seconds": "seconds",
    "ticket_mb": "MB",
    "diversity.disagreement": "disagreement",
    "diversity.kl": "KL",
    "diversity.kl_one_way": "KL, i<j",
    "correlation.pearson": "Pearson",
    "correlation.spearman": "Spearman",
}
_DIGITS = {
    "tickets": 0,
    "sparsity": 2,
    "train_flops": 2,
    "growth_flops": 4,
    "test_flops": 2,
    "training_runs": 1,
    "seconds": 0,
    "ticket_mb": 2,
}
_LESS_IS_BETTER = ("nll", "ece", "ece_pooled", "flops", "runs", "seconds", "mb", "fpr95")


@dataclass(frozen=True)
class Heading:
    """How a column is shown.

    Attributes:
        title: Above it.
        scale: What a number is multiplied by: 100 for shares that the paper has in per cent.
        digits: Behind the point.
        better: What the sign of a better number's difference is, 1 or -1.

    Example:
        >>> heading_of("c_nll").title, heading_of("c_nll").better
        ('cNLL', -1)
        >>> heading_of("attacks.fgsm.min").title, heading_of("accuracy").text(0.9631)
        ('FGSM min', '96.31')
    """

    title: str
    scale: int
    digits: int
    better: int

    def text(self, value: float) -> str:
        """A number of the column as it is shown."""
        return f"{self.scale * value:.{self.digits}f}"

    def printed(self, value: float) -> str:
        """A number of the paper, with the digits that it is printed with.

        Example:
            >>> heading_of("accuracy").printed(96.0), heading_of("nll").printed(0.16)
            ('96.0', '0.160')
        """
        digits = len(repr(float(value)).partition(".")[2])
        least = 1 if self.scale == 100 else self.digits
        return f"{value:.{max(digits, least) if least else 0}f}"


def heading_of(column: str) -> Heading:
    """How a column is shown."""
    percentage = is_percentage(column)
    better = -1 if column.endswith(_LESS_IS_BETTER) else 1
    digits = _DIGITS.get(column, 2 if percentage else 4 if column.startswith("ood.") else 3)
    return Heading(_title(column), 100 if percentage else 1, digits, better)


def _title(column: str) -> str:
    if column in _TITLES:
        return _TITLES[column]
    kind, *words = column.split(".")
    if kind == "diversity":
        return words[-1].replace("_", " ")
    if kind == "attacks":
        return f"{words[0].upper()} {words[1]}"
    return f"{words[0]} {words[1].upper()}"
