"""What trainings need, against what networks, sparsifiers and the allocator really hold."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from freetickets.config import Config
from freetickets.data import get_spec
from freetickets.models import create_model
from freetickets.sparsity import Sparsifier
from freetickets.sparsity.weight import MaskedWeight
from freetickets.training.job import Job

from .loading import ROOT, load_script

TOOL = load_script("tools/paper_needs.py")


def needs(method, dataset="cifar10", model="wrn-28-10", **options):
    spec = get_spec(dataset)
    config = Config(method=method, options=options, dataset=dataset, model=model)
    return TOOL.needs_of(Job(config.resolved(spec), spec, None))  # no data is read


def test_a_step_of_the_papers_network_reduces_146_megabytes():
    found = needs("edst", tickets=3, sparsity=0.8)
    assert found.weights == 4 * 36_479_194
    assert found.memory == 3 * found.weights + found.masks + found.activations
    # 0.8 of 36,461,232 weights are zero; BatchNorm's parameters and the last bias never are.
    zeros = round(0.8 * 36_461_232)
    assert found.active == pytest.approx(found.weights - 4 * zeros, abs=4 * 100)


def test_masked_weights_do_the_work_of_dense_ones_and_who_prunes_begins_with_all():
    sparse, dense = needs("edst", tickets=3, sparsity=0.8), needs("dense")
    assert sparse.executed_flops == pytest.approx(1.8 * dense.flops)  # 450 epochs against 250
    assert sparse.flops < 0.62 * dense.flops
    assert dense.executed_flops == dense.flops
    assert (dense.masks, dense.active) == (0, dense.weights)
    for method in ("pf", "ltr"):
        found = needs(method, model="wrn-10-1")
        assert found.active == found.weights
        assert found.masks > needs("dst", model="wrn-10-1").masks  # which leaves some layers dense


def test_masks_take_what_a_sparsifier_holds():
    network = create_model("wrn-10-2", (3, 32, 32), 10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.8, backend="masked")
    held = 0
    for weight in sparsifier._weights:
        assert isinstance(weight, MaskedWeight)
        tensors = (each for each in vars(weight).values() if isinstance(each, torch.Tensor))
        held += sum(each.nbytes for each in tensors if each is not weight.parameter)
    assert needs("static", model="wrn-10-2", sparsity=0.8).masks == held > 0


@pytest.mark.parametrize(
    ("model", "size"), [("wrn-10-1", 32), ("resnet-18", 64), ("resnet-50", 64)]
)
def test_kept_activations_are_what_the_allocator_still_holds_after_a_forward_pass(model, size):
    shape, samples = (3, size, size), 8
    with torch.device("meta"):
        outline = create_model(model, shape, 10)
    counted = TOOL.activation_bytes(outline, shape, samples)
    network = create_model(model, shape, 10)
    inputs, labels = torch.randn(samples, *shape), torch.zeros(samples, dtype=torch.long)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        loss = cross_entropy(network(inputs), labels)
    held = sum(event.self_cpu_memory_usage for event in profiled.key_averages())
    assert loss.requires_grad
    assert counted == pytest.approx(held, rel=1e-3)  # the labels were there, the loss is not kept


def test_members_in_one_network_keep_their_own_activations():
    dense = needs("dense", model="wrn-10-1").activations
    assert needs("batch-ensemble", model="wrn-10-1", members=4).activations > 4 * dense
    assert dense < needs("treenet", model="wrn-10-1", members=3).activations < 3 * dense
    assert needs("mc-dropout", model="wrn-10-1").activations > dense


@pytest.mark.slow
def test_the_documentation_shows_what_the_tool_prints(capsys):
    assert TOOL.main(["cifar10", "imagenet"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n| ") == 12 + 8 + 2
    assert printed.strip() in (ROOT / "docs" / "scale.md").read_text()
