"""EDST against one dense model on the embedded data, three seeds: the table in the README.

    python examples/three_seeds.py [--output runs/three-seeds] [--epochs N]

Stores each run as it goes; started again, it repeats nothing that is finished.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

import freetickets as ft
from freetickets.evaluation import evaluate_run
from freetickets.storage import read_json

SEEDS = (0, 1, 2)


def train(method: ft.EDST | ft.Dense, seed: int, epochs: float | None, folder: Path) -> dict:
    """Trains and evaluates one run; returns its scores and its cost."""
    ensemble = method.fit(
        "cnn", "fashion-mini", epochs=epochs, seed=seed, output=folder, quiet=True
    )
    scores = evaluate_run(folder, ensemble)
    ledger = read_json(folder / "ledger.json")
    return {**scores, "flops": ledger["relative_flops"], "seconds": ledger["seconds"]}


def main() -> None:
    """Prints a row for each seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/three-seeds"))
    parser.add_argument("--epochs", type=float, help="of the dense model; EDST trains 1.8x as long")
    parsed = parser.parse_args()
    print("| seed | dense acc / NLL | EDST members' mean | EDST ensemble | training FLOPs |")
    print("|---|---|---|---|---|")
    rows = []
    for seed in SEEDS:
        edst_epochs = parsed.epochs and 1.8 * parsed.epochs
        dense = train(ft.Dense(), seed, parsed.epochs, parsed.output / f"dense-{seed}")
        edst = train(ft.EDST(), seed, edst_epochs, parsed.output / f"edst-{seed}")
        row = (dense["ensemble"], edst["member_mean"], edst["ensemble"])
        rows.append(row)
        print(f"| {seed} | {' | '.join(map(cell, row))} | {edst['flops']:.3f}x |", flush=True)
    means = [
        {score: mean(row[column][score] for row in rows) for score in ("accuracy", "nll")}
        for column in range(3)
    ]
    print(f"| mean | {' | '.join(map(cell, means))} | |")


def cell(scores: dict) -> str:
    """Accuracy and NLL in one cell."""
    return f"{scores['accuracy']:.2%} / {scores['nll']:.4f}"


if __name__ == "__main__":
    main()
