"""A cascade asks as few members as it may, and answers what those say."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.cascade import ALLOWED, Cascade, answers, fit_cascade, prefixes
from freetickets.errors import DamagedFileError
from freetickets.metrics.predictive import RULES
from freetickets.seal import seal_values

SMALL = {"batch_size": 10, "epochs": 6, "quiet": True}


def drawn(seed, members, samples, classes, spread):
    """Members that know something of the labels; numbers are coarse, so that there are ties."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, samples)
    logits = rng.integers(-3, 4, (members, samples, classes)) + 2 * np.eye(classes)[labels]
    return log_softmax(spread * logits, axis=-1), labels


def joined(said, combine, temperature):
    """What members say together of one sample, (m, C), from the definition."""
    logs = log_softmax(said.mean(0)) if combine == "logits" else np.log(np.exp(said).mean(0))
    return logs if temperature is None else log_softmax(logs / temperature.values[0])


def by_hand(cascade, said, temperature):
    """What is answered to each sample, and by how many members, one after the other."""
    found = []
    for n in range(said.shape[1]):
        for m in range(1, len(said) + 1):
            joint = joined(said[:m, n], cascade.combine, temperature)
            classes = said[:m, n].argmax(-1).tolist()
            sure = cascade.threshold is not None and np.exp(joint.max()) >= cascade.threshold
            agreed = cascade.votes is not None and max(map(classes.count, classes)) >= cascade.votes
            if sure or agreed or m == len(said):
                found.append((m, joint))
                break
    asked, joints = zip(*found, strict=True)
    return np.array(asked), np.stack(joints)


def losses(joint, labels, score):
    if score == "accuracy":
        return (joint.argmax(-1) != labels).astype(float)
    return -joint[np.arange(len(labels)), labels]


draws = st.tuples(
    st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 25), st.integers(2, 4),
    st.sampled_from([0.1, 0.5, 1.0]),
)  # fmt: skip
temperatures = st.sampled_from([None, Temperature((0.5,)), Temperature((3.0,))])
rules = st.sampled_from(RULES)


@settings(max_examples=60, deadline=None)
@given(draws, temperatures, rules, st.floats(0, 1) | st.none(), st.integers(1, 5) | st.none())
def test_members_are_asked_until_enough_was_said(draw, temperature, combine, threshold, votes):
    said, _ = drawn(*draw)
    cascade = Cascade(len(said), threshold, votes, combine)
    wanted, joint = by_hand(cascade, said, temperature)
    joints = prefixes(said, combine, temperature)
    asked = cascade.asked(said, joints)
    assert np.array_equal(asked, wanted)
    np.testing.assert_allclose(answers(joints, asked), joint, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(draws, temperatures, rules, st.sampled_from(list(ALLOWED)), st.sampled_from([0, 0.05, 0.3]))
def test_no_other_cascade_that_is_allowed_asks_fewer(draw, temperature, combine, score, allowed):
    said, labels = drawn(*draw)
    how = {"combine": combine, "temperature": temperature}
    found = fit_cascade(said, labels, score=score, allowed=allowed, **how)
    whole = losses(
        by_hand(Cascade(len(said), combine=combine), said, temperature)[1], labels, score
    )

    def measured(cascade):
        asked, joint = by_hand(cascade, said, temperature)
        extra = np.array([*(losses(joint, labels, score) - whole), 1.0])
        return asked.mean(), extra.mean() + extra.std(ddof=1) / math.sqrt(len(extra))

    asked, loss = measured(found)
    assert loss <= allowed + 1e-9 or (found.threshold, found.votes) == (None, None)
    confidences = np.exp(prefixes(said, combine, temperature)[:-1].max(-1))
    thresholds = [
        None,
        *(np.unique(confidences.round(5)) - 5e-6),
    ]  # few enough for all of them to be tried
    for threshold, votes in itertools.product(thresholds, [None, *range(2, len(said))]):
        other, its_loss = measured(Cascade(len(said), threshold, votes, combine))
        assert asked <= other + 1e-9 or its_loss > allowed - 1e-9


def test_little_data_allow_little_and_equal_members_ask_one():
    said, labels = drawn(0, 3, 2000, 4, 0.5)
    means = []
    for samples in (10, 200, 2000):
        part = said[:, :samples]
        cascade = fit_cascade(part, labels[:samples], allowed=0.02)
        means.append(cascade.asked(part, prefixes(part)).mean())
    assert means[0] == 3
    assert means[0] > means[1] > means[2]
    same = np.repeat(said[:1], 3, axis=0)
    assert fit_cascade(same, labels).asked(same, prefixes(same)).max() == 1
    assert fit_cascade(said[:1], labels) == Cascade(1)


@pytest.fixture(scope="module")
def ensemble(features):
    return ft.DenseEnsemble(tickets=3).fit("mlp-8", features, **SMALL)


@pytest.fixture(scope="module")
def held_out():
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(300) % 3
    return torch.randn(300, 6, generator=generator) + torch.eye(6)[labels], labels


@pytest.mark.parametrize("scope", [None, "ensemble", "members"])
@pytest.mark.parametrize("score", ALLOWED)
def test_an_ensemble_asks_its_members_in_turn(ensemble, held_out, scope, score):
    x, y = held_out
    calibrated = ensemble if scope is None else ensemble.calibrate(x, y, scope)
    fitted = calibrated.cascade(x, y, score, allowed=0.03)
    assert calibrated.early is None
    said, value = calibrated.member_log_proba(x), fitted.temperature
    joints = prefixes(said, "probabilities", value)
    asked = fitted.early.asked(said, joints)
    assert 1 < asked.mean() < 3
    for size in (300, 32, 7):
        found = fitted.predict_in_turn(x, size)
        assert np.array_equal(found.asked, asked)
        np.testing.assert_allclose(found.log_proba, answers(joints, asked), atol=1e-5)
        alone = found.uncertainty.epistemic[asked == 1]
        np.testing.assert_allclose(alone, 0, atol=1e-9)
        total = -(np.exp(found.log_proba) * found.log_proba).sum(-1)
        np.testing.assert_allclose(found.uncertainty.total, total, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(x), calibrated.predict_proba(x), atol=1e-5)


def test_later_members_are_asked_about_whole_batches(ensemble, held_out, monkeypatch):
    fitted = ensemble.with_cascade(Cascade(3, threshold=0.8))
    sizes = {0: [], 1: [], 2: []}
    real = fitted._ask

    def ask(number, inputs):
        sizes[number].append(len(inputs))
        return real(number, inputs)

    monkeypatch.setattr(fitted, "_ask", ask)
    asked = fitted.predict_in_turn(held_out[0], 40).asked
    for number, found in sizes.items():
        assert sum(found) == (asked > number).sum()
        assert set(found[:-1]) <= {40}


def test_a_cascade_is_saved_with_its_temperature_and_goes_with_another(
    refused, ensemble, held_out, tmp_path
):
    x, y = held_out
    fitted = ensemble.calibrate(x, y).cascade(x, y)
    fitted.save(tmp_path)
    loaded = ft.load(tmp_path)
    assert loaded.early == fitted.early
    assert np.array_equal(*(e.predict_in_turn(x).asked for e in (loaded, fitted)))
    assert fitted.calibrate(x, y).early is None
    assert fitted.select(x, y, 2).early is None
    refused("other members, another rule", fitted.select(x, y, 2).with_cascade, fitted.early)
    refused("other members, another rule", ensemble.with_cascade, fitted.early)
    refused("has no cascade: fit one", ensemble.predict_in_turn, x)
    path, good = tmp_path / "cascade.json", fitted.early.as_dict()
    changes = [{"threshold": value} for value in (1.5, -1, math.nan, "0.5")]
    changes += [{"members": 2}, {"votes": 0}, {"combine": "x"}, {"temperatures": []}, {"x": 1}]
    for change in changes:
        path.write_text(json.dumps(seal_values({**good, **change})))
        error = refused(r"e\.json can't be used \(", ft.load, tmp_path)
        assert isinstance(error, DamagedFileError)
    ensemble.save(tmp_path)
    assert not path.exists()


def test_members_of_one_network_and_other_scores_are_refused_in_one_line(
    refused, ensemble, features
):
    mimo = ft.MIMO(members=2).fit("mlp-8", features, **SMALL)
    refused("mimo share one network, which answers for all", mimo.cascade, *features)
    refused("score of a cascade", ensemble.cascade, *features, "ece")
