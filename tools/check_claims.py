"""Compute all verdicts of a scale again, from its records alone: check_claims.py [FOLDER ...].

    python tools/check_claims.py results/small results/medium

FOLDER/claims.json says which cells each finding compares, and what was decided. The rule of
docs/reproduce.md is applied to FOLDER/results by code of its own: NumPy and SciPy, no freetickets.
Exit code 1 if any outcome differs.
"""

import csv
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

MARGINS = {"accuracy": 0.005, "nll": 0.02}
LEDGER = {"train_flops": "relative_flops", "test_flops": "relative_test_flops"}
UNKNOWN = (math.nan, math.nan, math.nan)
Key = tuple[str, int]


class Scale:
    """The records of a folder, those of its cells.csv: others came after the page was made."""

    def __init__(self, folder: Path) -> None:
        with (folder / "cells.csv").open() as file:
            rows = [(row["cell"], row["seed"]) for row in csv.DictReader(file)]
        paths = [folder / "results" / cell / f"{seed}.json" for cell, seed in rows]
        self.records: dict[Key, Any] = {}
        self.answers: dict[Key, Any] = {}
        for path in paths:
            record = json.loads(path.read_text())
            key = record["cell"], record["seed"]
            self.records[key] = record
            if path.with_suffix(".npz").exists():
                with np.load(path.with_suffix(".npz")) as arrays:
                    self.answers[key] = dict(arrays)

    def score(self, key: Key, column: str, members: int | None) -> float | None:
        """A number of a record, or of its first members."""
        record = self.records[key]
        if column == "seconds" or column in LEDGER:
            return float(record["ledger"][LEDGER.get(column, column)])
        group, _, rest = column.partition(".")
        path = column.split(".")
        if group == "ood":
            path.insert(2, "max_probability")
        place = record["metrics"]
        if members not in (None, record["ledger"]["members"]):
            place = record["first"][str(members)]
            path = path if group in ("ood", "attacks") else [rest or column]
        elif column.startswith("c_"):
            place = next(iter(place.get("shift", {"": {"means": {}}}).values()))["means"]
            path = ["all19" if "all19" in place else next(iter(place), ""), column[2:]]
        elif column.startswith("member_"):
            path = ["member_mean", column[7:]]
        elif not rest:
            path = ["ensemble", column]
        for word in path:
            place = place.get(word, {}) if isinstance(place, dict) else {}
        return float(place) if isinstance(place, (int, float)) else None

    def by_seed(self, cell: str, columns: Sequence[str], members: int | None) -> dict[int, float]:
        """The mean of some columns of a cell, for each seed that has all."""
        found = {}
        for name, seed in self.records:
            if name == cell:
                values = [self.score((cell, seed), column, members) for column in columns]
                if None not in values:
                    found[seed] = float(np.mean(np.array(values, dtype=float)))
        return found

    def each_image(self, key: Key, column: str) -> Any:
        """What each test image adds to a score; None if it is no mean, or was not kept."""
        if (kept := self.answers.get(key)) is None:
            return None
        part = {"c_": "corruptions", "at": "fgsm"}.get(column[:2])
        rows = slice(None, -1) if column.startswith("member_") else slice(-1, None)
        if column == "diversity.disagreement":
            pairs = itertools.combinations(kept["predicted"][:-1], 2)
            return np.mean([one != other for one, other in pairs], axis=0)
        if part:
            kind = "log_likelihood" if column.endswith("nll") else "correct"
            if column == "c_ece" or f"shifted/{part}/{kind}" not in kept:
                return None
            values = kept[f"shifted/{part}/{kind}"].astype(float) / kept[f"shifted/{part}/versions"]
        elif column.endswith("accuracy"):
            values = (kept["predicted"] == kept["labels"]).astype(float)
        elif column.endswith("nll"):
            values = kept["log_likelihood"].astype(float)
        else:
            return None
        return values[rows].mean(0) * (-1 if column.endswith("nll") else 1)

    def over_images(self, one: str, other: str, column: str, seeds: list[int]) -> tuple[float, int]:
        """The variance of a difference over test images, and their number."""
        sides = [[(cell, seed) for seed in seeds] for cell in (one, other)]
        if any(key not in self.answers for keys in sides for key in keys):
            return 0.0, 0
        count = len(self.answers[sides[0][0]]["labels"])
        if column == "ece":
            draws = np.random.default_rng(7).integers(0, count, (1000, count))
            mine, theirs = (
                np.mean([ece(self.answers[k], draws) for k in keys], 0) for keys in sides
            )
            return float(np.var(mine - theirs, ddof=1)), count
        if column.startswith("ood."):  # DeLong's way, in place of a bootstrap
            unknown = f"unknown/{column.split('.')[1]}/max_probability"
            placed = [[placements(self.answers[key], unknown) for key in keys] for keys in sides]
            gaps = [
                np.mean([each[part] for each in placed[0]], 0)
                - np.mean([e[part] for e in placed[1]], 0)
                for part in (0, 1)
            ]
            return float(sum(np.var(gap, ddof=1) / len(gap) for gap in gaps)), count
        mine, theirs = ([self.each_image(key, column) for key in keys] for keys in sides)
        if any(each is None for each in (*mine, *theirs)):
            return 0.0, 0
        gap = np.mean(mine, 0) - np.mean(theirs, 0)
        return float(np.var(gap, ddof=1) / len(gap)), len(gap)


def ece(kept: Any, draws: Any) -> Any:
    """The ECE of drawn images."""
    sure = kept["confidence"][-1] / 65535
    gaps = (kept["predicted"][-1] == kept["labels"]) - sure
    bins = np.clip(np.ceil(sure * 15).astype(int) - 1, 0, 14)
    sums = (np.bincount(bins[draw], gaps[draw], 15) for draw in draws)
    return np.array([np.abs(each).sum() / len(gaps) for each in sums])


def placements(kept: Any, unknown: str) -> tuple[Any, Any]:
    """For each image inside the share of those outside above it; for each outside, below."""
    inside, outside = kept["unknown/test/max_probability"], kept[unknown]
    ranks = stats.rankdata(np.concatenate([inside, outside]))
    above = 1 - (ranks[: len(inside)] - stats.rankdata(inside)) / len(outside)
    return above, (ranks[len(inside) :] - stats.rankdata(outside)) / len(inside)


def measure(scale: Scale, finding: Any) -> tuple[float, float, float] | None:
    """Difference, standard error and degrees of freedom; NaN for what decides nothing."""
    one, other, columns = finding["one"], finding["other"], finding["columns"]
    if other is None:
        values = []
        for seed in range(100):
            pair = [
                [scale.by_seed(c, [s], None).get(seed) for c in one["cells"]]
                for s in ("member_accuracy", "accuracy")
            ]
            if None not in (*pair[0], *pair[1]):
                values.append(np.arctanh(stats.pearsonr(*pair).statistic))
        spread = ((len(one["cells"]) - 3) * max(1, len(values))) ** -0.5
        return (float(np.mean(values)), spread, np.inf) if values else None
    if columns[0].startswith("seconds_"):
        rounds = [np.log(side["seconds"]) for side in (one, other)]
        if not all(map(len, rounds)):
            return None
        logs = rounds[0] - rounds[1]
        return (
            (float(logs.mean()), float(stats.sem(logs)), len(logs) - 1)
            if logs[1:].size
            else UNKNOWN
        )
    (cell,), (against,) = one["cells"], other["cells"]
    mine = scale.by_seed(cell, columns, one["members"])
    theirs = scale.by_seed(against, columns, other["members"])
    seeds = sorted(set(mine) & set(theirs))
    gaps = np.array([mine[seed] - theirs[seed] for seed in seeds])
    if not seeds:
        return None
    if columns[0] in (*LEDGER, "seconds"):
        logs = np.log([mine[seed] / theirs[seed] for seed in seeds])
        if columns[0] in LEDGER:
            return float(logs.mean()), 0.0, np.inf
        return (
            (float(logs.mean()), float(stats.sem(logs)), len(logs) - 1)
            if logs[1:].size
            else UNKNOWN
        )
    dataset = scale.records[cell, seeds[0]]["dataset"]
    names = {name for (name, _), record in scale.records.items() if record["dataset"] == dataset}
    methods = [scale.by_seed(name, columns, None) for name in sorted(names)]
    methods += [own for own, side in ((mine, one), (theirs, other)) if side["members"] is not None]
    wanted = set(seeds)
    if len(seeds) == 1:
        shared = (set(a) & set(b) for a, b in itertools.combinations(methods, 2))
        wanted = max(shared, key=len, default=set())
    table = np.array([[m[s] for s in sorted(wanted)] for m in methods if wanted <= set(m)])
    joined = one["of"] is not None or other["of"] is not None
    training, freedom = 0.0, 1.0
    if not joined:
        if len(table.shape) < 2 or min(table.shape) < 2:
            return UNKNOWN
        freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
        rest = table - table.mean(0) - table.mean(1)[:, None] + table.mean()
        training = 2 * float((rest**2).sum()) / freedom / len(seeds)
    images, count = 0.0, 2
    if one["members"] is other["members"] is None and len(columns) == 1:
        images, count = scale.over_images(cell, against, columns[0], seeds)
    if joined and not images:
        return UNKNOWN
    below = training**2 / freedom + images**2 / max(1, count - 1)
    return float(gaps.mean()), (training + images) ** 0.5, (training + images) ** 2 / below


def p_values(finding: Any, value: float, error: float, freedom: float) -> tuple[float, float, int]:
    """For and against, and on which side it lies."""
    column, claimed = finding["columns"][-1], finding["claimed"]
    lower = column.endswith(("nll", "ece", "flops")) or column.startswith("seconds")
    gain, margin = (-value if lower else value), MARGINS.get(column, 0.0)
    side = int(np.sign(gain))
    if error == 0:
        return (0.0, 0.0, side) if side else (1.0, 1.0, 0)

    def above(distance: float) -> float:
        return float(stats.t.sf(distance / error, freedom))

    if claimed == "more":
        return 2 * above(abs(gain)), 2 * above(abs(gain)), side
    lost = -gain if claimed == "not less" else abs(gain)
    against = 2 * above(lost - margin) if lost > margin else 1.0
    within = above(gain + margin) if claimed == "not less" else above(margin - abs(gain))
    return within, against, 0


def outcomes(scale: Scale, claim: Any) -> Iterator[str]:
    """The outcome of each finding of a claim; an error that differs is said, too."""
    measured = [measure(scale, finding) for finding in claim["findings"]]
    result = ["not measured" if found is None else "undecided" for found in measured]
    told = [
        (*p_values(finding, *found), place)
        for place, (finding, found) in enumerate(zip(claim["findings"], measured, strict=True))
        if found is not None and not math.isnan(found[1])
    ]
    for kind, word in ((1, "contradicted"), (0, "supported")):
        adjusted = 0.0
        for rank, each in enumerate(sorted(told, key=lambda each: each[kind])):
            adjusted = max(adjusted, min(1.0, (len(told) - rank) * each[kind]))
            if adjusted <= 0.05 and each[2] != (1 if word == "contradicted" else -1):
                result[each[3]] = word
    for word, finding, found in zip(result, claim["findings"], measured, strict=True):
        said = finding["value, error, freedom"]
        near = said is None or found is None or math.isnan(found[1]) or said[2] is None
        near = near or np.allclose(found or (), said, rtol=0.1, atol=1e-6)
        yield word if near else f"{word} with {found} in place of {said}"


def main(folders: Sequence[str]) -> int:
    """Compare all verdicts; how many differ."""
    wrong = 0
    for folder in map(Path, folders):
        scale, claims = Scale(folder), json.loads((folder / "claims.json").read_text())
        for claim in claims:
            found = list(outcomes(scale, claim))
            whole = found[0] if len(set(found)) == 1 else "undecided"
            whole = "contradicted" if "contradicted" in found else whole
            said = [each["outcome"] for each in claim["findings"]]
            if found != said or whole != claim["outcome"]:
                wrong += 1
                print(f"{folder}, {claim['claim']} ({claim['dataset']}): {found}, not {said}")
        print(f"{folder}: {len(claims)} verdicts computed again, {wrong} differ")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:] or ["results/small", "results/medium"])))
