"""Invented results: numbers for a cell and a seed, as if it had been trained and evaluated."""

import itertools

import numpy as np
from scipy.special import log_softmax

from freetickets.evaluation import Predictions
from freetickets.experiments import Results, cells


def members_of(cell):
    return int(cell.options.get("tickets", cell.options.get("members", 1)))


def invent(cell, seed=1, **numbers):
    """A record; `numbers` are columns with "__" for ".", the others are made up."""
    given = {key.replace("__", "."): value for key, value in numbers.items()}
    size = members_of(cell)
    square = [[0.4] * size for _ in range(size)]
    scores = {"accuracy": 0.9, "nll": 0.3, "ece": 0.02}
    ensemble = {key: given.get(key, value) for key, value in scores.items()}
    member = {key: given.get(f"member_{key}", ensemble[key]) for key in scores}
    shifted = {key: given.get(f"c_{key}", value) for key, value in scores.items()}
    kl = given.get("diversity.kl", 0.07)
    differing = given.get("diversity.disagreement", 0.03)
    found = {"auroc": 0.9, "aupr": 0.8, "fpr95": 0.4}
    detection = {
        name: {
            "samples": 50,
            "max_probability": {**found, "auroc": given.get(f"ood.{name}.auroc", 0.9)},
            "entropy": found,
        }
        for name in ("svhn", "cifar100", "cifar10", "gaussian-noise")
    }
    attack = {key: given.get(f"attacks.fgsm.{key}", 0.4) for key in ("min", "mean", "max")}
    told = {"clean": 0.9, "epsilon": 0.1, "samples": 100, "transfer": square}
    corrupted = {
        **{key: [[value]] for key, value in shifted.items()},
        "source": "generated", "samples": 100, "types": ["fog"], "severities": [1],
        "means": {"given": {**shifted, "ece_pooled": shifted["ece"] / 2}},
    }  # fmt: skip
    metrics = {
        "dataset": cell.dataset, "samples": 100, "members": [member] * size, "member_mean": member,
        "ensemble": ensemble, "shift": {f"{cell.dataset}-c": corrupted}, "ood": detection,
        "attacks": {"fgsm": {**attack, **told}},
    }  # fmt: skip
    if size > 1:
        metrics["diversity"] = {
            "disagreement": differing, "kl": kl, "kl_one_way": kl,
            "disagreement_matrix": square, "kl_matrix": square,
            "disagreement_by_class": [differing + place / 100 for place in range(10)],
        }  # fmt: skip
    first = {
        str(k): {
            **ensemble,
            "accuracy": given.get(f"first.{k}.accuracy", ensemble["accuracy"]),
            "member_accuracy": member["accuracy"],
            **({"disagreement": differing, "kl": kl} if k > 1 else {}),
            "ood": {
                name: {**told, "max_probability": {"auroc": given.get(f"first.{k}.auroc", 0.85)}}
                for name, told in detection.items()
            },
            "attacks": {"fgsm": dict.fromkeys(attack, given.get(f"first.{k}.fgsm", 0.35))},
        }
        for k in range(1, size + 1)
    }
    ledger = {
        "relative_flops": given.get("train_flops", 0.5),
        "relative_growth_flops": 0.001,
        "relative_test_flops": given.get("test_flops", 0.2 * size),
        "seconds": given.get("seconds", 10.0),
        "runs": 1, "members": size, "dense_flops": 1e9, "flops": 5e8,
    }  # fmt: skip
    return {
        "scale": "smoke", "cell": cell.name, "dataset": cell.dataset, "data": "fashion-mini",
        "model": "mlp-16", "method": cell.method.name, "options": cell.options, "seed": seed,
        "fingerprint": "0", "notes": ["turned images stand for svhn"],
        "ledger": ledger,
        "seconds": {"training": ledger["seconds"], "evaluation": 2.0},
        "metrics": metrics,
        "first": first,
    }  # fmt: skip


def results_of(given):
    """Results of the numbers that are given of each cell and seed."""
    return Results({(c.name, seed): invent(c, seed, **own) for (c, seed), own in given.items()})


def of_cells(cells, **columns):
    """Results of the first seed; each column has a number for each cell."""
    rows = zip(*columns.values(), strict=True)
    numbers = [dict(zip(columns, row, strict=True)) for row in rows]
    return results_of({(cell, 1): own for cell, own in zip(cells, numbers, strict=True)})


def invent_results(experiments, numbers, seeds=(1,)):
    """Results of all cells of some experiments; `numbers` tells those of a cell and a seed."""
    every = {cell for experiment in experiments for cell in cells(experiment)}
    return results_of({(c, s): numbers(c, s) for c, s in itertools.product(every, seeds)})


def invent_predictions(logits, labels, **info):
    """Predictions of these logits, (M, N, C)."""
    logs = log_softmax(logits, axis=-1).astype(np.float32)
    return Predictions(logs, labels, {"dataset": "cifar10", "combine": "probabilities", **info})
