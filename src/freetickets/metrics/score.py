"""Scores: what computes each, what it is of each sample, and how people read it.

All that is known of a score stands in its entry, and columns of members' scores follow from it.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import FreeTicketsError
from .arrays import Array, Labels, top_class
from .calibration import DEFAULT_BINS, adaptive_ece, bin_edges, classwise_ece, ece
from .predictive import accuracy, brier, member_nll, nll, sample_brier, sample_correct, sample_nll
from .uncertainty import aurc

# The score of the samples with these numbers, of which some may come several times.
Drawn = Callable[[Labels], float]

_FORM = re.compile(r",?(\.\d)?[fge%]")


@dataclass(frozen=True)
class Column:
    """A number of a run, as tables show it."""

    key: str  # its name in files, in `--json` and in experiments: "c_nll", "ood.svhn.auroc"
    title: str  # above a column, and along an axis
    form: str = ".4f"  # as in an f-string; a form that ends in % makes axes of per cent
    higher_is_better: bool = False

    @property
    def better(self) -> Callable[[Iterable[float]], float]:
        """`max` or `min`: which of several values is the best."""
        return max if self.higher_is_better else min

    @property
    def sign(self) -> int:
        """What a difference to the better is multiplied by to be positive."""
        return 1 if self.higher_is_better else -1

    @property
    def arrow(self) -> str:
        """The direction in which it gets better."""
        return "↑" if self.higher_is_better else "↓"

    @property
    def is_share(self) -> bool:
        """Whether it is written in per cent; its differences are points then."""
        return self.form.endswith("%")

    def text(self, value: float | None) -> str:
        """A value as tables show it; a dash where there is none."""
        return "-" if value is None or not math.isfinite(value) else format(value, self.form)


@dataclass(frozen=True)
class Score(Column):
    """A number that says how good predictions are.

    Its function computes it of what members say, (M, N, ...), and the targets, (N, ...); the
    prediction of an ensemble comes as that of one member.
    """

    function: Callable[[Any, Any], float] | None = field(default=None, compare=False)
    name: str = ""  # in running text, if not its title
    short: str = ""  # above a narrow column, if not its title
    limits: tuple[float, float] = (-math.inf, math.inf)  # what it can be at least and at most
    # What each sample adds, (N,), if the score is the mean of that.
    samples: Callable[[Any, Any], Array] | None = field(default=None, compare=False)
    # Prepares the score of samples that are drawn again and again, if that is quicker.
    drawn: Callable[[Any, Any], Drawn] | None = field(default=None, compare=False)
    # Whether the function is given all members, not their joint prediction.
    of_members: bool = field(default=False, compare=False)
    # How it is defined, in a few words, if its name does not say it.
    caption: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # They may come from a file, and stand in pages.
        if not self.key.isidentifier() or self.key == "loss":  # which the log has beside it
            raise FreeTicketsError(f"a score can't have the key {self.key!r}: give a plain word")
        if not _FORM.fullmatch(self.form):
            raise FreeTicketsError(f"the form of {self.key} must be such as .4f, not {self.form!r}")
        object.__setattr__(self, "name", self.name or self.title)
        object.__setattr__(self, "short", self.short or self.title)

    def is_better(self, score: float, than: float | None) -> bool:
        """Whether a score is better than another; any is better than none."""
        if than is None:
            return not math.isnan(score)
        return score > than if self.higher_is_better else score < than

    def of_drawn(self, predictions: Any, targets: Any) -> Drawn:
        """What scores samples that are drawn from these: by one number each, where that will do."""
        if self.drawn is not None:
            return self.drawn(predictions, targets)
        if self.samples is not None:
            values = self.samples(predictions, targets)
            return lambda numbers: float(values[numbers].mean())
        compute = self.function
        if compute is None:
            raise FreeTicketsError(f"{self.key} has no function to compute it with")
        return lambda numbers: float(compute(predictions[:, numbers], targets[numbers]))


def _drawn_ece(logs: Array, truth: Labels) -> Drawn:
    top, confidence = top_class(logs)
    gaps = (top == truth) - confidence
    which = np.searchsorted(bin_edges(DEFAULT_BINS)[1:-1], confidence, side="left")
    return lambda numbers: float(
        np.abs(np.bincount(which[numbers], weights=gaps[numbers])).sum() / len(numbers)
    )


_SHARE = (0.0, 1 + 1e-6)  # a little above 1 is what rounding does

# What every table of classification shows, in this order; figures show the first two.
MAIN_SCORES = (
    Score("accuracy", "accuracy", ".2%", True, accuracy, short="Acc", limits=_SHARE,
          samples=sample_correct),
    Score("nll", "NLL", function=nll, name="negative log-likelihood", samples=sample_nll,
          caption="the mean negative log-likelihood in nats"),
    Score("ece", "ECE", function=ece, name="expected calibration error", limits=_SHARE,
          drawn=_drawn_ece, caption="the expected calibration error over "
          f"{DEFAULT_BINS} equal-width bins of confidence"),
)  # fmt: skip

# What is measured of classes beside them: of the ensemble, and the last of its members.
MORE_SCORES = (
    Score("brier", "Brier", function=brier, samples=sample_brier, caption="the mean squared "
          "distance between the predicted probabilities and the truth"),
    Score("adaptive_ece", "adaptive ECE", function=adaptive_ece,
          caption=f"the ECE over {DEFAULT_BINS} bins of equally many samples"),
    Score("classwise_ece", "classwise ECE", function=classwise_ece, caption="the mean over "
          "classes of the calibration error of their probabilities"),
    Score("aurc", "AURC", function=aurc, caption="the area under the risk-coverage curve"),
    Score("member_nll", "member NLL", function=member_nll, of_members=True, caption="the mean of "
          "the members' own NLLs; the ensemble's is lower by what their diversity gains"),
)  # fmt: skip

# The kinds of columns that hold scores of something else than the ensemble on the test set, by how
# their keys begin: what is put before the short title, and what a group of them is called.
KINDS = {"member": ("member ", "member mean"), "c": ("c", "corrupted"), "a": ("a", "ImageNet-A")}

POOLED = Column("c_ece_pooled", "cECE pooled")  # of all corrupted samples together

COSTS = (
    Column("train_flops", "training FLOPs", ".3f"),
    Column("growth_flops", "growth FLOPs"),
    Column("test_flops", "test FLOPs", ".3f"),
    Column("training_runs", "runs", "g"),
    Column("seconds", "seconds", ",.0f"),
    Column("ticket_mb", "MB", ",.2f"),
)

# Where a ledger has each cost, and what that is divided by.
LEDGER_FACTS = {
    "train_flops": ("relative_flops", 1), "growth_flops": ("relative_growth_flops", 1),
    "test_flops": ("relative_test_flops", 1), "training_runs": ("runs", 1),
    "seconds": ("seconds", 1), "ticket_mb": ("ticket_bytes", 1e6),
}  # fmt: skip


def columns_of_kind(kind: str, scores: Sequence[Score] = MAIN_SCORES) -> list[Column]:
    """The columns of one of the `KINDS`: one for each score, and the pooled ECE of corruptions."""
    before = KINDS[kind][0]
    found = [
        Column(f"{kind}_{it.key}", f"{before}{it.short}", it.form, it.higher_is_better)
        for it in scores
    ]
    return [*found, POOLED] if kind == "c" else found


_COLUMNS = {
    column.key: column
    for column in (
        *(Column(s.key, s.short, s.form, s.higher_is_better) for s in MAIN_SCORES),
        *(column for kind in KINDS for column in columns_of_kind(kind)),
        *COSTS,
        Column("seconds_ours", "seconds, our kernels", ".2f"),
        Column("seconds_pytorch", "seconds, PyTorch", ".2f"),
        Column("seconds_later", "seconds, newest kernels", ".2f"),
        Column("tickets", "M", "g", True),
        Column("sparsity", "S", ".2f", True),
        Column("diversity.disagreement", "disagreement", ".4f", True),
        Column("diversity.kl", "KL", ".4f", True),
        Column("diversity.kl_one_way", "KL, i<j", ".4f", True),
        Column("correlation.pearson", "Pearson", ".4f", True),
        Column("correlation.spearman", "Spearman", ".4f", True),
    )
}
_PATTERN = re.compile(
    r"diversity\.disagreement_by_class\.(?P<name>\w+)"
    r"|attacks\.(?P<attack>fgsm|pgd)\.(?P<which>clean|min|mean|max)"
    r"|ood\.(?P<set>[\w-]+)\.(?P<score>auroc|aupr|fpr95)"
)


def column_of(key: str) -> Column | None:
    """The column of a number that is measured of classes, or counted; None if there is none."""
    if key in _COLUMNS:
        return _COLUMNS[key]
    found = _PATTERN.fullmatch(key)
    if found is None:
        return None
    if found["name"]:
        return Column(key, found["name"].replace("_", " "), ".4f", True)
    if found["attack"]:
        return Column(key, f"{found['attack'].upper()} {found['which']}", ".2%", True)
    return Column(key, f"{found['set']} {found['score'].upper()}", ".4f", found["score"] != "fpr95")


def p_text(p: float) -> str:
    """A p-value as it is shown; a dash where there is none."""
    if math.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"
