import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax

from freetickets.calibration import HIGHEST, Temperature, fit_temperature
from freetickets.metrics import ensemble_log_probs, nll
from freetickets.metrics.predictive import RULES


def draw(members, samples, classes, spread=3.0, skill=2.0, seed=0):
    """Members that know something of the labels, and are surer of it the larger the spread."""
    rng = np.random.default_rng([seed, members, samples, classes])
    labels = rng.integers(0, classes, samples)
    logits = rng.normal(size=(members, samples, classes)) + skill * np.eye(classes)[labels]
    return log_softmax(spread * logits, axis=-1), labels


def by_hand(logs, labels, values, scope, combine):
    """The ensemble's NLL at given temperatures, from the definition."""

    def join(each):
        if combine == "logits":
            return log_softmax(each.mean(0), axis=-1)
        return np.log(np.exp(each).mean(0))

    if scope == "ensemble":
        scaled = log_softmax(join(logs) / values[0], axis=-1)
    else:
        scaled = join(np.stack([log_softmax(a / t, -1) for a, t in zip(logs, values, strict=True)]))
    return float(-scaled[np.arange(len(labels)), labels].mean())


def scaled_nll(temperature, logs, labels):
    """The NLL as a user gets it: apply, then combine by the same rule."""
    return nll(ensemble_log_probs(temperature.apply(logs), temperature.combine)[None], labels)


@pytest.mark.parametrize("scope", ["ensemble", "members"])
@pytest.mark.parametrize("combine", RULES)
@pytest.mark.parametrize("seed", range(6))
def test_no_other_optimizer_finds_better_temperatures_from_there(scope, combine, seed):
    """Members so different that some of them end at a bound and others do not."""
    rng = np.random.default_rng(seed)
    members = int(rng.integers(2, 7))
    logs, labels = draw(members, 300, 5, rng.uniform(0.1, 4), rng.uniform(0, 5), seed)
    logs = log_softmax(logs * rng.uniform(0.1, 4, size=(members, 1, 1)), axis=-1)
    found = fit_temperature(logs, labels, scope=scope, combine=combine)
    other = minimize(
        lambda at: by_hand(logs, labels, np.exp(at), scope, combine),
        np.log(found.values),
        bounds=[(-np.log(HIGHEST), np.log(HIGHEST))] * len(found.values),
        method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    assert scaled_nll(found, logs, labels) <= other.fun + 1e-7


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 30), st.integers(2, 8),
    st.floats(0, 60), st.floats(-3, 6), st.sampled_from(["ensemble", "members"]),
    st.sampled_from(RULES), st.floats(0, 0.5),
)  # fmt: skip
def test_it_is_never_worse_than_before_and_always_within_bounds(
    seed, members, samples, classes, spread, skill, scope, combine, ruled_out
):
    logs, labels = draw(members, samples, classes, spread, skill, seed)
    rng = np.random.default_rng(seed)
    # Every member has a class that it does not rule out; the same where members' logits are fitted,
    # which leave the samples out of which together they leave nothing.
    apart = scope == "ensemble" or combine == "probabilities"
    possible = rng.integers(0, classes if apart else 1, (members, samples, 1))
    logs[(rng.random(logs.shape) < ruled_out) & (np.arange(classes) != possible)] = -np.inf
    logs = log_softmax(logs, axis=-1)
    found = fit_temperature(logs, labels, scope=scope, combine=combine)
    values = np.array(found.values)
    assert len(values) == (members if scope == "members" else 1)
    assert ((values > 0.99 / HIGHEST) & (values < 1.01 * HIGHEST)).all()
    unscaled = Temperature((1.0,) * len(values), scope, combine)
    before, after = scaled_nll(unscaled, logs, labels), scaled_nll(found, logs, labels)
    assert after <= before * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("scope", ["ensemble", "members"])
@pytest.mark.parametrize("combine", RULES)
def test_a_truth_that_is_ruled_out_leaves_the_fit_to_the_others(scope, combine):
    logs, labels = draw(3, 60, 4)
    flawed = np.concatenate([logs, np.tile(np.log([0.2, 0.3, 0.4, 0.1]), (3, 1, 1))], axis=1)
    # One member's word is enough to rule a class out where logits are combined.
    flawed[: 1 if combine == "logits" else 3, -1, 3] = -np.inf
    flawed = log_softmax(flawed, axis=-1)
    found = fit_temperature(flawed, [*labels, 3], scope=scope, combine=combine)
    expected = fit_temperature(logs, labels, scope=scope, combine=combine)
    assert found.values == pytest.approx(expected.values, rel=1e-4)
    alone = fit_temperature(flawed[:, -1:], [3], scope=scope, combine=combine)
    assert set(alone.values) == {1.0}


def test_where_one_member_rules_out_the_truth_the_others_are_still_fitted():
    logs = np.array([[np.log([0.9, 0.1])], [[0.0, -np.inf]]])
    found = fit_temperature(logs, [1], scope="members")
    assert found.values == pytest.approx([HIGHEST, 1.0])
    no_preference = np.full((2, 5, 4), -np.log(4))
    assert fit_temperature(no_preference, [0, 1, 2, 3, 0]).values == (1.0,)


@pytest.mark.parametrize("scope", ["ensemble", "members"])
@pytest.mark.parametrize("combine", RULES)
def test_labels_that_are_always_or_never_right_lead_to_the_bounds(scope, combine):
    logs = np.log([[[0.9, 0.1]], [[0.7, 0.3]]])
    sure = fit_temperature(logs, [0], scope=scope, combine=combine)
    unsure = fit_temperature(logs, [1], scope=scope, combine=combine)
    assert sure.values[0] == pytest.approx(1 / HIGHEST, rel=0.5)
    assert unsure.values == pytest.approx([HIGHEST] * len(unsure.values))
    assert scaled_nll(sure, logs, [0]) < 1e-3


@pytest.mark.parametrize("combine", RULES)
@pytest.mark.parametrize(("values", "scope"), [((0.5, 1.0, 2.0), "members"), ((2.0,), "ensemble")])
def test_what_is_applied_is_the_members_share_and_then_the_ensembles(combine, values, scope):
    logs, _ = draw(3, 20, 4)
    logs[0, 0] = [0.0, -np.inf, -np.inf, -np.inf]
    temperature = Temperature(values, scope, combine)
    applied, members = temperature.apply(logs), temperature.scale_members(logs)
    assert applied.shape == (len(values), 20, 4)
    np.testing.assert_allclose(np.exp(applied).sum(-1), 1, atol=1e-12)
    found = temperature.scale_ensemble(ensemble_log_probs(members, combine))
    np.testing.assert_allclose(found, ensemble_log_probs(applied, combine), atol=1e-12)
    assert np.array_equal(members, logs) == (scope == "ensemble")
    np.testing.assert_array_equal(members[0, 0], logs[0, 0])
    np.testing.assert_allclose(members[1], logs[1], atol=1e-12)


def test_it_survives_a_file_and_what_is_none_is_refused(refused):
    logs, labels = draw(2, 30, 3)
    found = fit_temperature(logs, labels, scope="members", combine="logits")
    saved = json.loads(json.dumps(found.as_dict()))
    assert Temperature.from_dict(saved) == found
    for wrong in ([1.0], {**saved, "unit": "K"}, {**saved, "values": 1}, {**saved, "scope": "x"}):
        refused(r"not a temperature \(.*fit it again", Temperature.from_dict, wrong)
    for wrong, message in (
        ({"scope": "member"}, "did you mean 'members'"),
        ({"combine": "logit"}, "did you mean 'logits'"),
        ({"labels": labels[:-1]}, "30 predictions need 30 labels"),
    ):
        refused(message, fit_temperature, logs, **{"labels": labels, **wrong})
    for values in ((), (0.0,), (-1.0,), (np.nan,), (np.inf,)):
        refused("temperatures must be positive", Temperature, values)
    refused("one temperature, not 2", Temperature, (1.0, 2.0))
    three = Temperature((1.0, 2.0, 3.0), "members")
    refused("for 3 members, not for 2: fit them again", three.apply, logs)
