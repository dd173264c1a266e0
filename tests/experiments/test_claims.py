"""Claims: each is supported, undecided or contradicted by the numbers that say so."""

import pytest

from freetickets.experiments import CLAIMS, Results, load
from freetickets.experiments.claims import judge

from .invented import invent_results

WIGGLE = (-0.0002, 0.0, 0.0002)  # of the first, second and third seed


def wiggle(cell, seed):
    """Noise of a cell and a seed: differences of two cells have some, too."""
    return WIGGLE[(seed * (1 + len(cell.name) % 2)) % 3]


def step(cell, *order):
    """How far in front a cell is, of methods from the best to the worst."""
    name = cell.method.name
    return 0.01 * (len(order) - order.index(name)) if name in order else 0.0


def still(cell):
    """Whether a cell does not explore."""
    return 0.01 * (cell.method.name == "static" or cell.options.get("escape_rate") == 0)


def option(cell, name, default=0.0):
    return cell.options.get(name, default)


def diversity(gap):
    return {"diversity__disagreement": 0.1 + gap, "diversity__kl": 0.2 + gap}


def scores(better, loss=1.0):
    return {"accuracy": 0.9 + better, "nll": 0.3 - loss * better}


# For each claim: a table that has it, and numbers with a gap g: 1 is as the paper says, -1 against.
WORLDS = {
    "ensembles-beat-dense": ("cifar10", lambda cell, g: scores(g * step(cell, "dst", "edst"))),
    "dst-matches-dense-ensemble": (
        "cifar10", lambda cell, g: scores((g - 1) * step(cell, "dst"), 5),
    ),
    "dst-beats-static": (
        "cifar10",
        lambda cell, g: dict.fromkeys(("accuracy", "member_accuracy"), 0.8 + g * step(cell, "dst")),
    ),
    "diversity-order": (
        "diversity", lambda cell, g: diversity(g * step(cell, "dst", "static", "edst", "ltr")),
    ),
    "exploration-raises-diversity": (
        "ablation",
        lambda cell, g: {**diversity(-g * still(cell)), "accuracy": 0.9 - g * still(cell)},
    ),
    "edst-costs-less": (
        "cifar10",
        lambda cell, g: {
            "train_flops": 1 - g * 40 * step(cell, "edst"),
            "seconds": 100 - g * 3000 * step(cell, "edst"),
        },
    ),
    "ensembles-help-under-shift": (
        "cifar10",
        lambda cell, g: {
            "c_nll": 1 - 10 * g * step(cell, "dst", "edst"),
            "c_ece": 0.2 - g * step(cell, "dst", "edst"),
        },
    ),
    "ensembles-help-ood": (
        "ood-cifar10",
        lambda cell, g: {
            f"ood__{name}__auroc": 0.85 + g * 0.02 * (cell.method.name != "dense")
            for name in ("svhn", "cifar100", "gaussian-noise")
        },
    ),
    "ensembles-help-under-attack": (
        "fgsm", lambda cell, g: {"attacks__fgsm__mean": 0.35 + g * 0.02},
    ),
    "members-and-ensemble-correlate": (
        "correlation",
        lambda cell, g: {
            "accuracy": 0.9 + 0.1 * option(cell, "sparsity") ** 2,
            "member_accuracy": 0.9 + g * 0.1 * option(cell, "sparsity"),
        },
    ),
    "size-helps-dst": (
        "ensemble-size",
        lambda cell, g: {
            **{f"first__{k}__accuracy": 0.9 + g * 0.01 * k for k in range(1, 7)},
            "accuracy": 0.9 + g * 0.07,
        },
    ),
    "size-costs-edst-members": (
        "ensemble-size",
        lambda cell, g: {
            "member_accuracy": 0.8 - g * 0.01 * option(cell, "tickets", 1),
            "accuracy": 0.9 + g * step(cell, "edst"),
        },
    ),
    "sparse-test-is-cheap": (
        "snapshot-fge",
        lambda cell, g: {
            "test_flops": 5 - g * 200 * step(cell, "dst", "edst"),
            "accuracy": 0.9 + (g - 1) * step(cell, "dst", "edst"),
        },
    ),
    "escape-rate-raises-diversity": (
        "escape-rate",
        lambda cell, g: {
            **diversity(g * 0.1 * option(cell, "escape_rate", 0.8)),
            "accuracy": 0.9 - g * 0.1 * (option(cell, "escape_rate", 0.8) - 0.5) ** 2,
        },
    ),
    "growth-matters-little": (
        "growth",
        lambda cell, g: {
            "accuracy": 0.9 + (0.002 if g > 0 else 0.02) * (cell.options["grow"] == "random")
        },
    ),
}  # fmt: skip


def verdicts(claim, gap, seeds=(0, 1, 2)):
    """What is said of a claim in a world of some gap, on each data set of the table."""
    name, world = WORLDS[claim]
    experiment = load(name)

    def numbers(cell, seed):
        return {
            key: value + (0 if key.endswith("flops") else wiggle(cell, seed))
            for key, value in world(cell, gap).items()
        }

    found = judge(experiment, invent_results([experiment], numbers, seeds))
    return [verdict for verdict in found if verdict.claim == claim]


def test_every_claim_is_checked_here():
    assert set(WORLDS) == set(CLAIMS)
    for claim, (name, _) in WORLDS.items():
        assert claim in load(name).claims


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_decided_by_what_is_measured_and_its_noise(claim):
    holds = verdicts(claim, 1)
    assert {verdict.outcome for verdict in holds} == {"supported"}
    assert all(verdict.findings for verdict in holds)
    assert {verdict.outcome for verdict in verdicts(claim, -1)} == {"contradicted"}
    noisy = verdicts(claim, 1, seeds=(0,))  # one seed and no predictions: nothing tells the noise
    assert {verdict.outcome for verdict in noisy} == {"undecided"} or claim == (
        "members-and-ensemble-correlate"  # where six sparsities tell it
    )
    experiment = load(WORLDS[claim][0])
    nothing = judge(experiment, Results())
    assert {verdict.outcome for verdict in nothing} == {"not measured"}
    datasets = {row.dataset for row in experiment.rows}
    assert len(nothing) == len(experiment.claims) * len(datasets)


def test_a_set_that_could_not_be_had_is_left_out():
    table = load("ood-cifar10")
    results = invent_results([table], lambda cell, seed: {}, (1, 2))
    for record in results.records.values():
        del record["metrics"]["ood"]["svhn"]
        for first in record["first"].values():
            del first["ood"]["svhn"]
    (verdict,) = judge(table, results)
    assert all("mean AUROC of 2 sets" in finding.text for finding in verdict.findings)
    assert all(finding.outcome != "not measured" for finding in verdict.findings)
