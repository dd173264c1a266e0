"""Measuring: from the saved predictions of a run to what its file of results says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def measure(folder: str | Path, row_members: Iterable[int | None] = ()) -> dict[str, Any]:
    """The parts "metrics" and "first" of a file of results; no network is needed.

    Args:
        folder: The run's, evaluated.
        row_members: For which numbers of first members the other sets are scored too.
    """
    from ..evaluation.summary import evaluation_of_first, summarise

    metrics = summarise(folder)
    # Where the data lies is nobody's concern, nor is a digest of that.
    metrics["dataset"] = Path(metrics["dataset"]).name
    metrics.pop("settings", None)
    wanted = set(row_members)
    first = {}
    for size in range(1, len(metrics["members"]) + 1):
        scores = evaluation_of_first(folder, size, sets=size in wanted).as_dict()
        first[str(size)] = {
            **scores["ensemble"],
            "member_accuracy": scores["member_mean"]["accuracy"],
            "member_nll": scores["member_mean"]["nll"],
            "member_ece": scores["member_mean"]["ece"],
            **{
                key: value
                for key, value in scores.get("diversity", {}).items()
                if key in ("disagreement", "kl", "kl_one_way")
            },
            **{key: scores[key] for key in ("ood", "attacks") if key in scores},
        }
    return {"metrics": metrics, "first": first}
