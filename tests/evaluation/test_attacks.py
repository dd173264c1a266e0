from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.evaluation import Predictions
from freetickets.evaluation.attacks import attack_predictions, loss_gradient, perturb
from freetickets.evaluation.sets import Predictor
from freetickets.methods import MIMO, BatchEnsemble, MCDropout, TreeNet

EPSILON = 8 / 255
SMALL = {"batch_size": 16, "epochs": 6, "lr": 0.1, "quiet": True}
ONE_NETWORK = [MIMO(members=2), BatchEnsemble(members=3), TreeNet(members=2), MCDropout(passes=3)]


def normalised(pixels, ensemble):
    mean, std = (torch.tensor(ensemble.info[key]).view(-1, 1, 1) for key in ("mean", "std"))
    return (pixels - mean) / std


def accuracies(predictions):
    """Of each target (column) on the images made for each source (row)."""
    return np.array(
        [(part.outputs.argmax(-1) == part.labels).mean(-1) for part in predictions.parts]
    )


def attacked(ensemble, split, attack="fgsm", epsilon=EPSILON, batch_size=256, **options):
    """What is saved of an attack."""
    info = {"dataset": "bars", "attack": attack, "epsilon": epsilon}
    return attack_predictions(Predictor(ensemble, batch_size), info, split, **options)


@pytest.fixture(scope="module")
def ensemble(images_npz):
    return ft.EDST(tickets=2, interval=4).fit("cnn-4", str(images_npz), **SMALL)


class Smooth(nn.Module):
    """A small network with BatchNorm and no kinks, so that differences tell its gradient."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.fc = nn.Linear(48, 4)

    def forward(self, x):
        return self.fc(torch.tanh(self.norm(self.conv(x))).flatten(1))


@pytest.fixture
def smooth():
    torch.manual_seed(0)
    model = Smooth().double()
    model.train()
    for _ in range(3):
        model(torch.rand(8, 2, 4, 4, dtype=torch.float64))  # statistics that are not 0 and 1
    return model


# ---- the change itself


def test_fgsm_of_a_linear_softmax_model_is_the_closed_form():
    rng = np.random.default_rng(0)
    weight, mean, std = rng.normal(size=(5, 12)), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    x, y = rng.random((20, 3, 2, 2)), rng.integers(0, 5, 20)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5, bias=False)).double()
    model[1].weight.data.copy_(torch.from_numpy(weight))

    shape = (1, 3, 1, 1)
    inputs = (x - np.reshape(mean, shape)) / np.reshape(std, shape)
    scores = inputs.reshape(20, 12) @ weight.T
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    gradient = ((probs - np.eye(5)[y]) @ weight).reshape(x.shape) / np.reshape(std, shape)
    expected = np.clip(x + EPSILON * np.sign(gradient), 0, 1)

    images, labels = torch.from_numpy(x), torch.from_numpy(y)
    found = loss_gradient(model, images, labels, mean, std)
    np.testing.assert_allclose(found.numpy(), gradient, rtol=1e-10)
    changed = perturb(model, images, labels, EPSILON, mean, std)
    np.testing.assert_allclose(changed.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 2 / 255, 8 / 255, 0.5])
@pytest.mark.parametrize("steps", [1, 7])
def test_pixels_stay_within_epsilon_and_within_black_and_white(smooth, epsilon, steps):
    x = torch.rand(6, 2, 4, 4, dtype=torch.float64).round(decimals=1)  # some at the very edges
    y = torch.arange(6) % 4
    changed = perturb(smooth, x, y, epsilon, steps=steps, step_size=0.3, random_start=steps > 1)
    assert float((changed - x).abs().max()) <= epsilon + 1e-12
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1
    assert (epsilon == 0) == torch.equal(changed, x)


def test_an_attack_leaves_no_trace_and_sees_norms_in_evaluation_mode(smooth):
    smooth.train()
    smooth.norm.eval()  # each module has a mode of its own
    before = {name: value.clone() for name, value in smooth.state_dict().items()}
    x = torch.rand(4, 2, 4, 4, dtype=torch.float64)
    kept = x.clone()
    with torch.no_grad():
        perturb(smooth, x, torch.arange(4), steps=3, random_start=True)
    assert torch.equal(x, kept)
    assert all(torch.equal(value, before[name]) for name, value in smooth.state_dict().items())
    assert all(parameter.grad is None for parameter in smooth.parameters())
    assert (smooth.training, smooth.conv.training, smooth.norm.training) == (True, True, False)
    x, y = torch.rand(5, 2, 4, 4, dtype=torch.float64), torch.arange(5) % 4
    options = {"steps": 3, "step_size": 0.01, "random_start": True, "seed": 4}
    whole = perturb(smooth.train(), x, y, **options)
    parts = [perturb(smooth, x[i : i + 2], y[i : i + 2], first=i, **options) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole)
    assert not torch.equal(perturb(smooth, x, y, **{**options, "seed": 5}), whole)


def test_a_sure_answer_is_attacked_too_and_what_can_not_be_meant_refused(refused, smooth):
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    model[1].weight.data.copy_(torch.tensor([[100.0, 0.0], [0.0, 100.0]]))
    x = torch.tensor([0.65, 0.35]).view(1, 1, 1, 2)  # in float32 the probability is 1
    changed = perturb(model, x, torch.tensor([0]), epsilon=0.05).flatten()
    assert changed.tolist() == pytest.approx([0.6, 0.4])
    for options, reason in (
        ({"epsilon": 8.0}, "8/255 instead of 8"),
        ({"steps": 0}, "at least 1 step"),
        ({"x": torch.full((1, 2, 4, 4), 255.0)}, r"pixels in \[0, 1\]"),
        ({"x": torch.ones(1, 2, 4, 4, dtype=torch.uint8)}, "divide uint8 by 255"),
    ):
        given = {"x": torch.rand(1, 2, 4, 4), "y": torch.tensor([0]), **options}
        refused(reason, perturb, smooth, **given)


# ---- what the members of an ensemble say of it


def test_each_part_is_what_all_members_say_of_one_members_images(ensemble, test_set):
    found = attacked(ensemble, test_set, batch_size=20)
    assert found.outputs.shape == (2, 2 * len(test_set), 3)
    assert found.outputs.dtype == np.float32
    x = test_set.inputs.float() / 255
    mean, std = ensemble.info["mean"], ensemble.info["std"]
    for number, part in enumerate(found.parts):
        assert part.info["part"] == str(number + 1)
        assert np.array_equal(part.labels, test_set.labels.numpy())
        changed = perturb(ensemble.networks[number], x, test_set.labels, EPSILON, mean, std)
        expected = ensemble.member_log_proba(normalised(changed, ensemble))
        np.testing.assert_allclose(part.outputs, expected, atol=2e-4)


def test_the_file_says_what_the_attack_was(ensemble, test_set, tmp_path):
    calls = []
    predictor = Predictor(ensemble, 30, SimpleNamespace(advance=calls.append))
    asked = {"dataset": "bars", "attack": "pgd", "epsilon": EPSILON}
    attack_predictions(predictor, asked, test_set, steps=2).save(tmp_path / "pgd.npz")
    info = Predictions.load(tmp_path / "pgd.npz").info
    assert (info["attack"], info["steps"], info["seed"]) == ("pgd", 2, 0)
    assert info["epsilon"] == EPSILON
    assert info["step_size"] == pytest.approx(2.5 * EPSILON / 2)
    assert (info["parts"], info["combine"]) == (["1", "2"], "probabilities")
    assert calls == [30, 30, 15, 15]
    fgsm = attacked(ensemble, test_set, steps=7).info
    assert (fgsm["attack"], fgsm["steps"], fgsm["step_size"]) == ("fgsm", 1, EPSILON)


def test_fgsm_lowers_the_accuracy_and_a_temperature_changes_nothing(ensemble, test_set):
    clean = (ensemble.member_log_proba(test_set).argmax(-1) == test_set.labels.numpy()).mean(-1)
    epsilon = 40 / 255  # the bars are bright: a small change misleads nobody
    fgsm = accuracies(attacked(ensemble, test_set, "fgsm", epsilon))
    pgd = accuracies(attacked(ensemble, test_set, "pgd", epsilon, steps=20))
    assert (np.diag(fgsm) < clean - 0.1).all()
    assert (np.diag(pgd) <= np.diag(fgsm)).all()
    warm = ensemble.with_temperature(Temperature((3.0, 2.0), "members"))
    plain = attacked(ensemble, test_set)
    for each in (warm, ensemble.compile()):
        found = attacked(each, test_set)
        np.testing.assert_allclose(found.outputs, plain.outputs, atol=2e-4)
    scaled = attacked(warm, test_set).parts[0]
    assert scaled.info["temperature"] == warm.temperature.as_dict()


@pytest.mark.parametrize("method", ONE_NETWORK, ids=lambda method: method.name)
def test_members_of_one_network_are_attacked_by_their_own_outputs(method, images_npz, test_set):
    ensemble = method.fit("cnn-4", str(images_npz), **SMALL)
    members, batch = len(ensemble), test_set.subset(range(16))
    found = attacked(ensemble, batch, epsilon=0.1, batch_size=16)
    assert found.outputs.shape == (members, members * 16, 3)
    (network,) = ensemble.networks
    mean, std = ensemble.info["mean"], ensemble.info["std"]
    x, labels = batch.inputs.float() / 255, batch.labels
    images = []
    for member, part in enumerate(found.parts):
        images.append(perturb(network, x, labels, 0.1, mean, std, member=member))
        expected = ensemble.member_log_proba(normalised(images[-1], ensemble), batch_size=16)
        np.testing.assert_allclose(part.outputs, expected, atol=2e-4)
        clean = ensemble.member_log_proba(batch, batch_size=16)[member]
        truth = np.arange(16), labels.numpy()
        assert part.outputs[member][truth].mean() < clean[truth].mean()
    assert not torch.equal(images[0], images[1])
