import dataclasses

import torch

from freetickets.sparsity import SCORES, Score, WeightView
from freetickets.sparsity.score import as_mixture, as_score, magnitude_gradient


def view(weight, gradient=None, momentum=None, seed=0):
    weight = torch.as_tensor(weight)
    generator = torch.Generator().manual_seed(seed)
    return WeightView("fc.weight", weight, weight != 0, gradient, momentum, generator)


def test_scores_are_absolute_values_and_ask_for_gradients_if_they_look_at_them():
    seen = view([-3.0, 2.0, 0.5], torch.tensor([1.0, -4.0, 0.0]), torch.tensor([-5.0, 0.5, 0.0]))
    expected = {
        "magnitude": [3, 2, 0.5], "gradient": [1, 4, 0], "momentum": [5, 0.5, 0],
        "magnitude-gradient": [4, 6, 0.5],
    }  # fmt: skip
    assert {name: SCORES[name](seen).tolist() for name in expected} == expected
    half = as_score(lambda view: magnitude_gradient(view, 0.5))
    assert half(seen).tolist() == [3.5, 4, 0.5]
    for name in ("gradient", "momentum"):
        assert SCORES[name](view([-3.0, 2.0])).tolist() == [0, 0]
    needs = {name: set(score.needs) for name, score in SCORES.items() if score.needs}
    gradient = {"gradient"}
    assert needs == {
        "gradient": gradient, "momentum": {"momentum"}, "magnitude-gradient": gradient,
    }  # fmt: skip
    assert as_score(lambda seen: seen.weight).needs == {"gradient"}
    mine = Score(lambda seen: torch.tensor([3, 7]), frozenset())
    assert as_score(mine) is mine
    assert mine(view([1.0, 2.0])).is_floating_point()  # whole numbers are welcome


def test_what_is_no_score_is_refused(refused):
    for make, message in (
        (lambda: as_score("gradiant"), "unknown score 'gradiant': did you mean 'gradient'"),
        (lambda: as_mixture({"gradient": 1, "randm": 1}), "did you mean 'random'"),
        (lambda: Score(len, frozenset({"gradients"})), "did you mean 'gradient'"),
        (lambda: as_score(lambda seen: seen.weight.sum()), r"shape \(\), the weight \(2,\)"),
        (lambda: as_mixture({}), "needs shares that are positive"),
        (lambda: as_mixture({"gradient": 0}), "needs shares that are positive"),
        (lambda: as_mixture({"gradient": 2, "random": -1}), "needs shares that are positive"),
    ):
        refused(message, lambda make=make: make()(view([1.0, 2.0])))


def test_a_mixture_has_shares_and_random_unfired_the_never_active_first():
    parts = as_mixture({"gradient": 3, "random": 1, "momentum": 0})
    assert [share for _, share in parts] == [0.75, 0.25, 0]
    assert [score for score, _ in parts] == [SCORES[n] for n in ("gradient", "random", "momentum")]
    assert as_mixture("random") == [(SCORES["random"], 1.0)]
    fired = torch.tensor([True, False] * 25)
    seen = dataclasses.replace(view(torch.ones(50)), ever_active=fired)
    scores = SCORES["random-unfired"](seen)
    assert scores[~fired].min() > scores[fired].max()
    assert len(scores.unique()) == 50
    plain = SCORES["random"](view(torch.ones(50)))
    assert torch.equal(scores[fired], plain[fired])
    assert torch.equal(SCORES["random-unfired"](view(torch.ones(50))), plain)
