"""Devices, precisions and updates, beside PyTorch's own words for them."""

import pytest
import torch
from torch import nn

from freetickets.training import parallel
from freetickets.training.parallel import Compute, Ranks, make_compute


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_another_precision_is_left_and_a_step_that_overflows_left_out(precision):
    torch.manual_seed(0)
    network, inputs, ours = nn.Linear(4, 3), torch.randn(5, 4), Compute(precision=precision)
    with ours.autocast():
        output = network(inputs)
    assert output.dtype == precision
    assert ours.single(output).dtype == torch.float32
    assert torch.equal(ours.single(output), output.float())
    state = ours.state_dict()
    if precision is torch.bfloat16:
        assert state == {}
        return
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    before = network.weight.detach().clone()
    ours.update(network(inputs).square().mean() * 1e38, optimizer)  # infinite once scaled
    assert torch.equal(network.weight.detach(), before)
    assert ours.state_dict()["scale"] == state["scale"] / 2
    ours.update(network(inputs).square().mean(), optimizer)
    assert not torch.equal(network.weight.detach(), before)
    resumed = Compute(precision=torch.float16)
    resumed.load_state_dict(ours.state_dict())
    assert resumed.state_dict() == ours.state_dict() != state


def test_an_absent_device_is_one_line_and_each_rank_takes_its_own_gpu(refused, monkeypatch):
    for name in ("warp", "meta"):
        refused(f"can't use --device {name}: ", make_compute, name, amp=False)
    assert make_compute("cpu", amp=True).device == torch.device("cpu")
    asked: list[str] = []
    cpu = torch.device("cpu")
    monkeypatch.setattr(parallel, "find_device", lambda name: asked.append(name) or cpu)
    monkeypatch.setattr(parallel, "meet", lambda _: Ranks())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "2")
    make_compute("auto", amp=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    for device in ("auto", "cuda", "cuda:1", "cpu"):
        make_compute(device, amp=False)
    assert asked == ["auto", "cuda:2", "cuda:2", "cuda:1", "cpu"]
