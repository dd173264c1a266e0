"""Folders of made-up runs with everything in them that an evaluation can write."""

import csv
import io
from dataclasses import dataclass, replace

import numpy as np
import yaml

from freetickets import metrics
from freetickets.config import read_run_config
from freetickets.evaluation import Predictions
from freetickets.seal import seal_table, seal_text
from freetickets.storage import write_json

DENSE_FLOPS = 3.6e17
ALL19 = metrics.CORRUPTION_SETS["all19"]
LAYERS = [f"block{b}.layer.{i}.conv{c}" for b in (1, 2, 3) for i in (0, 1) for c in (1, 2)]
LAYERS = ["conv1", *LAYERS, "fc"]


@dataclass(frozen=True)
class Fake:
    """A made-up run: the higher `skill`, the better its members; `spread` makes them differ."""

    name: str
    method: str
    members: int
    runs: float
    sparsity: float
    epochs: int
    skill: float
    spread: float = 1.0
    seed: int = 0


FAKES = (
    Fake("dense", "dense", 1, 1, 0.0, 250, 4.0),
    Fake("dense-ensemble", "dense-ensemble", 4, 4, 0.0, 250, 4.0, 1.1),
    Fake("dst", "dst", 3, 3, 0.8, 250, 3.9, 1.4),
    Fake("edst", "edst", 3, 1, 0.8, 450, 3.8, 1.0),
)


def write_fake(root, fake, samples=600, classes=10, *, rich=True):
    """Writes the folder of a run; `rich` ones with every set that can be evaluated."""
    folder = root / fake.name
    folder.mkdir(parents=True)
    options = {"tickets": fake.members} | ({"sparsity": fake.sparsity} if fake.sparsity else {})
    config = {"method": fake.method, "options": options, "dataset": "cifar10", "seed": fake.seed}
    config["model"] = "wrn-28-10"
    (folder / "config.yaml").write_text(seal_text(yaml.safe_dump(config)))
    phases = _phases(fake)
    write_json(folder / "ledger.json", _ledger(fake, phases))
    write_log(folder, _log(fake, phases))
    predictions = _predict(fake, samples, classes, 1.0)
    predictions.save(folder / "predictions" / "cifar10.npz")
    scores = predictions.scores()
    if rich:
        scores |= _more(predictions)
        scores |= _evaluated(folder, fake, samples, classes)
        if fake.members > 1:
            scores |= _pairs(predictions)
            _write_trajectory(folder, fake, classes)
    write_json(folder / "metrics.json", scores)
    return folder


def _predict(fake, samples, classes, ease, known=True, stream=0):
    """Predictions of members that share some of their mistakes; `ease` makes them right."""
    labels = np.random.default_rng(7).integers(classes, size=samples)
    shared = np.random.default_rng([11, stream]).normal(size=(samples, classes))
    own = np.random.default_rng([fake.seed, fake.members, len(fake.method), stream])
    noise = own.normal(size=(fake.members, samples, classes))
    logits = 1.2 * shared + fake.spread * noise
    if known:
        logits[:, np.arange(samples), labels] += fake.skill * ease
    else:
        labels = np.full(samples, -1)
    logits *= 1.7
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    info = {"dataset": "cifar10", "split": "test", "method": fake.method, "model": "wrn-28-10"}
    info |= {"combine": "probabilities", "sparsity": fake.sparsity}
    return Predictions(logs.astype(np.float32), labels, info)


def _more(predictions):
    ensemble, labels = predictions.ensemble(), predictions.labels
    keys = ("brier", "adaptive_ece", "classwise_ece")
    more = {key: getattr(metrics, key)(ensemble, labels) for key in keys}
    more["aurc"] = metrics.risk_coverage(ensemble, labels).area
    return {"more": more | {"member_nll": metrics.member_nll(predictions.members(), labels)}}


def _pairs(predictions):
    members, size = predictions.members(), len(predictions.outputs)
    draw = np.random.default_rng(3)
    features = []
    for depth, layer in enumerate(LAYERS):
        matrix = (1 + depth / 4) * draw.uniform(0.8, 1.2, (size, size)) * (1 - np.eye(size))
        mean = float(matrix.sum() / (size * (size - 1)))
        features.append({"layer": layer, "kl": mean, "kl_matrix": matrix.tolist()})
    by_class = metrics.disagreement_by_class(members, predictions.labels)
    diversity = {key: getattr(metrics, key)(members) for key in ("disagreement", "kl")}
    diversity["kl_one_way"] = metrics.kl(members, ordered=False)
    for key in ("disagreement_matrix", "kl_matrix"):
        diversity[key] = getattr(metrics, key)(members).tolist()
    diversity["disagreement_by_class"] = by_class.tolist()
    return {"diversity": diversity, "features": features}


def _evaluated(folder, fake, samples, classes):
    """Corruptions, sets of no class, attacks and layers."""

    def scores(kind, severity):
        ease = 0.95 - 0.12 * severity - 0.015 * kind
        return _predict(fake, 200, classes, ease, stream=kind).scores()["ensemble"]

    grid = [[scores(kind, severity) for severity in range(1, 6)] for kind in range(len(ALL19))]
    keys = ("accuracy", "nll", "ece")
    table = {key: [[cell[key] for cell in row] for row in grid] for key in keys}
    means = {}
    for name in ("all19", "common15"):
        lines = [ALL19.index(kind) for kind in metrics.CORRUPTION_SETS[name]]
        means[name] = {key: float(np.mean(np.array(table[key])[lines])) for key in table}
        means[name]["ece_pooled"] = 0.9 * float(np.mean(table["ece"]))
    clean = _predict(fake, samples, classes, 1.0).scores()["ensemble"]["accuracy"]
    draw = np.random.default_rng(5)
    transfer = clean * draw.uniform(0.3, 0.5, (fake.members, fake.members))
    transfer[np.diag_indices(fake.members)] *= 0.3
    attacked = transfer.mean(1) + 0.05
    inside = _predict(fake, samples, classes, 1.0)
    unknown = {}
    for number, name in enumerate(("svhn", "gaussian-noise")):
        outside = _predict(fake, samples, classes, 0, known=False, stream=100 + number)
        outside.save(folder / "predictions" / "ood" / f"{name}.npz")
        unknown[name] = {"samples": samples, **_detection(inside, outside)}
    shift = {"source": "generated", "frost": "synthetic", "samples": 200, "means": means}
    shift |= {"types": list(ALL19), "severities": [1, 2, 3, 4, 5], **table}
    attack = {"epsilon": 8 / 255, "steps": 1, "samples": samples, "clean": clean}
    attack |= {key: float(getattr(attacked, key)()) for key in ("min", "mean", "max")}
    attack |= {"ensemble": attacked.tolist(), "transfer": transfer.tolist()}
    layers = []
    for depth, layer in enumerate(LAYERS):
        density = min(1.0, (1 - fake.sparsity) * (2 - depth / len(LAYERS)))
        layers.append({"name": layer, "shape": [16, 16, 3, 3], "density": [density] * fake.members})
    found = {"shift": {"cifar10-c": shift}, "ood": unknown, "attacks": {"fgsm": attack}}
    return found | {"layers": layers}


def _detection(inside, outside):
    found = {}
    for score in metrics.NOVELTY_SCORES:
        sides = [metrics.novelty(each.members(), score) for each in (inside, outside)]
        keys = ("auroc", "aupr", "fpr95")
        found[score] = {key: getattr(metrics, key)(*sides) for key in keys}
    return found


def _phases(fake):
    """Training run, name, epochs and events of each phase."""
    if fake.method != "edst":
        return [(run, "train", fake.epochs, "collect") for run in range(1, int(fake.runs) + 1)]
    length = fake.epochs // (fake.members + 1)
    refine = [(1, f"refine {n}", length, "collect escape") for n in range(1, fake.members)]
    return [(1, "explore", length, ""), *refine, (1, f"refine {fake.members}", length, "collect")]


def _ledger(fake, phases):
    density = 1 - fake.sparsity
    flops = DENSE_FLOPS / 250 * (1.7 * density if fake.sparsity else 1)
    same = {"sparsity": fake.sparsity, "explorations": 97 if fake.sparsity else 0}
    same["growth_flops"] = 1e13 if fake.sparsity else 0.0
    told = [
        {"run": run, "phase": name, "epochs": float(epochs), "steps": 391 * epochs, **same}
        | {"flops": flops * epochs, "seconds": 40.0 * epochs}
        for run, name, epochs, _ in phases
    ]
    return {
        "tickets": fake.members, "members": fake.members, "runs": fake.runs, "phases": told,
        "dense_epochs": 250.0, "dense_flops": DENSE_FLOPS, "dense_forward_flops": 1e10,
        "test_flops": 1e10 * density * fake.members, "parameters": 36_500_000,
        "ticket_parameters": int(36_500_000 * density),
        "ticket_bytes": int(146e6 * density * fake.members),
    }  # fmt: skip


def write_log(folder, rows):
    """Writes a log that belongs to the settings in the folder."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sealed = seal_table(text.getvalue(), read_run_config(folder).identity)
    (folder / "log.csv").write_text(sealed)


def _log(fake, phases):
    rows = []
    before = (0, 0)
    for run, name, epochs, events in phases:
        start = before[1] if before[0] == run else 0
        for epoch in range(start + 1, start + epochs + 1):
            progress = epoch / fake.epochs
            loss = 2.0 * np.exp(-4 * progress) + 0.05 + 0.1 * ((epoch - start) < 3)
            row = {"run": run, "phase": name, "epoch": float(epoch), "step": 391 * epoch}
            row["lr"] = 0.1 * 0.1 ** int(3 * (epoch - start) / epochs)
            row |= {"train_loss": loss, "train_accuracy": 1 - loss / 3}
            row |= {"validation_loss": loss + 0.1, "validation_accuracy": 1 - (loss + 0.1) / 3}
            row["itop_rate"] = 1 - 0.8 * np.exp(-3 * progress) if fake.sparsity else ""
            row["events"] = events if epoch == start + epochs else ""
            rows.append({**row, "seconds": 40.0 * epoch})
        before = (run, start + epochs)
    return rows


def _write_trajectory(folder, fake, classes, samples=40):
    """Ten checkpoints of each ticket, on the way from a shared start to an own end."""
    labels = np.random.default_rng(7).integers(classes, size=samples)
    for ticket in range(1, fake.members + 1):
        run = 1 if fake.method == "edst" else ticket
        first = 10 * (ticket - 1) if fake.method == "edst" else 0
        for step in range(1, 11):
            end = _predict(fake, samples, classes, step / 10, stream=step).outputs[ticket - 1]
            number = first + step
            info = {"kind": "trajectory", "dataset": "cifar10", "combine": "probabilities"}
            info |= {"run": run, "step": 391 * number, "epoch": float(number), "ticket": ticket}
            info |= {"phase": f"refine {ticket}", "collected": step == 10}
            info["samples"] = list(range(samples))
            path = folder / "trajectory" / f"{run}-{391 * number:06}.npz"
            Predictions(end[None], labels, info).save(path)


def with_results(run, **changed):
    """A run that was read, with some results changed."""
    return replace(run, results=replace(run.results, **changed))


def shift_of(run, types=19, severities=5, **changed):
    """The corruptions of a run that was read, cut to the first ones."""
    shift = run.results.shift["cifar10-c"]
    cut = {key: values[:types, :severities] for key, values in shift.scores.items()}
    size = {"types": shift.types[:types], "severities": shift.severities[:severities]}
    return {"cifar10-c": replace(shift, scores=cut, **size, **changed)}
