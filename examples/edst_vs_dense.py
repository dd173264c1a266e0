"""EDST (random growth) against one dense model on the embedded data: the table of the README.

    python examples/edst_vs_dense.py                                  # fashion-mini's own test set
    python examples/edst_vs_dense.py --unseen --seeds 10 11 12 13 14  # images that it lacks

`--unseen` scores the 8,000 official test images of Fashion-MNIST that fashion-mini leaves out
(downloaded, or found in --data-dir). Runs are stored as they go; started again, the script repeats
nothing that is finished.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev

import torch

import freetickets as ft
from freetickets.evaluation import Predictions
from freetickets.reading import read_json


def unseen_images(data_dir: str | None) -> ft.data.Split:
    """The official test images without the first 200 of each class, which fashion-mini has."""
    test = ft.data.load("fashion-mnist", "test", data_dir)
    kept = [torch.nonzero(test.labels == label).flatten()[200:] for label in range(10)]
    return test.subset(torch.cat(kept))


def score(ensemble: ft.Ensemble, images: ft.data.Split) -> dict:
    """Scores of the members, their mean and the ensemble."""
    info = {"dataset": "fashion", "combine": ensemble.info["combine"]}
    return Predictions(ensemble.member_log_proba(images), images.labels.numpy(), info).scores()


def cell(scores: dict) -> str:
    """Accuracy and NLL in one cell."""
    return f"{scores['accuracy']:.2%} / {scores['nll']:.4f}"


def main() -> None:
    """Prints a row for each seed, the means, and the paired differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tickets", type=int, default=5)
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--data-dir")
    parser.add_argument("--output", type=Path, default=Path("runs/edst-vs-dense"))
    parsed = parser.parse_args()
    unseen = parsed.unseen
    images = unseen_images(parsed.data_dir) if unseen else ft.data.load("fashion-mini", "test")
    edst = ft.EDST(tickets=parsed.tickets, grow="random")
    # Masked, so that the README's digits don't depend on which kernels are faster here.
    settings = {"quiet": True, "backend": "masked"}
    print(f"| seed, {len(images):,} images | dense | EDST members' mean | EDST ensemble | FLOPs |")
    print("|---|---|---|---|---|")
    rows = []
    for seed in parsed.seeds:
        scores = []
        for name, method in (("dense", ft.Dense()), (f"edst{parsed.tickets}", edst)):
            folder = parsed.output / f"{name}-{seed}"
            fitted = method.fit("mlp-512-512", "fashion-mini", seed=seed, output=folder, **settings)
            scores.append(score(fitted, images))
        cost = read_json(folder / "ledger.json")["relative_flops"]
        row = (scores[0]["ensemble"], scores[1]["member_mean"], scores[1]["ensemble"])
        rows.append(row)
        print(f"| {seed} | {' | '.join(map(cell, row))} | {cost:.3f}x |", flush=True)
    means = [{k: mean(r[i][k] for r in rows) for k in ("accuracy", "nll")} for i in range(3)]
    print(f"| mean | {' | '.join(map(cell, means))} | |")
    for name in ("accuracy", "nll"):
        gaps = [row[2][name] - row[0][name] for row in rows]
        error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
        print(f"{name}, EDST ensemble - dense: {mean(gaps):+.4f} (standard error {error:.4f})")


if __name__ == "__main__":
    main()
