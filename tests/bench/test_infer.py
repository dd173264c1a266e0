import sys
from dataclasses import replace

import pytest
import torch

from freetickets.bench import infer, timing
from freetickets.bench.timing import Ratio
from freetickets.evaluation.results import Adjusted, Evaluation
from freetickets.kernels.library import available

needs_kernels = pytest.mark.skipif(not available(), reason="the kernels are not built")


def eager(network, x, threads):
    return lambda: network(x)


def absent(network, x, threads):
    raise infer.AbsentError("it needs the package foo")


@needs_kernels
def test_a_loaded_ensemble_is_set_against_the_better_layout_of_one_network(tiny, tmp_path, refused):
    row, of_ours = infer.ensemble(replace(tiny, batch=16))
    assert isinstance(row, Ratio)
    (side, ours), (other, dense) = row.seconds.items()
    assert side == "ensemble"
    assert other in ("PyTorch contiguous", "PyTorch channels_last")
    assert row.value == pytest.approx(ours / dense)
    assert (row.bar, row.aim) == (1.0, 0.8)
    assert "compiled by us" in of_ours.name
    without_bars = [of_ours, next(iter(infer.ensemble(tiny)))]  # of two samples there is none
    assert {(each.bar, each.aim) for each in without_bars} == {(None, None)}
    record = tmp_path / "metrics.json"
    scores = {"accuracy": 0.9, "nll": 0.3, "ece": 0.1}
    found = Evaluation("x", 10, (scores,), scores, scores)
    found.save(record)
    asked = replace(tiny, record=str(record))
    refused("knows no cascade", lambda: list(infer.ensemble(asked)))
    replace(found, adjusted=Adjusted((1, 2), None, None, asked=(6, 4))).save(record)
    _, _, in_turn = infer.ensemble(asked)
    ours, dense = in_turn.seconds.values()
    assert in_turn.value == pytest.approx(1.4 * ours / dense)
    assert "asked in turn, 1.40 a sample" in in_turn.name


@needs_kernels
def test_pruned_networks_are_set_against_pytorch_and_the_rivals_that_there_are(tiny, monkeypatch):
    monkeypatch.setattr(infer, "RIVALS", {"OpenVINO": absent, "torch.compile": eager})
    line, *rows = infer.pruned(tiny)
    assert line == "OpenVINO is left out: it needs the package foo"
    sides = [tuple(row.seconds) for row in rows]
    assert [ours for ours, _ in sides[::2]] == ["S=0", "S=0.5", "S=0.8", "S=0.9", "S=0.95"]
    assert {other.partition(" ")[0] for _, other in sides[::2]} == {"PyTorch"}
    assert {other for _, other in sides[1::2]} == {"torch.compile"}


@needs_kernels
def test_members_have_bars_against_onnx_runtime_and_what_is_absent_is_said(tiny, monkeypatch):
    fakes = {"ONNX Runtime": eager, "OpenVINO": absent, "torch.compile": eager}
    monkeypatch.setattr(infer, "RIVALS", fakes)
    bars = {
        "avx512": [(0.55, 0.40), (0.37, 0.30), (0.27, 0.20), (0.16, 0.12)],
        "avx2": [(0.60, 0.45), (0.36, 0.30), (0.25, 0.20), (0.15, 0.11)],
    }
    for instructions, limits in bars.items():
        monkeypatch.setattr(timing, "instruction_set", lambda name=instructions: name)
        line, *rows = infer.members(tiny)
        assert line == "OpenVINO is left out: it needs the package foo"
        assert [(row.bar, row.aim) for row in rows[::2]] == limits
        assert {(row.bar, row.aim) for row in rows[1::2]} == {(None, None)}
    assert list(rows[0].seconds) == ["our dense", "ONNX Runtime"]
    assert "the dense network, compiled by us, / one dense network in ONNX" in rows[0].name
    assert list(rows[-1].seconds) == ["member S=0.95", "torch.compile"]
    (row,) = infer.latency(tiny)
    assert "ONNX Runtime (wrn-10-1, batch 1, S=0.9)" in row.name
    assert (row.bar, row.aim) == (0.40, 0.25)


def test_without_their_packages_rivals_are_left_out_with_a_line(tiny, monkeypatch):
    for package in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, package, None)

    def broken(*_, **__):
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", broken)
    assert list(infer.members(tiny)) == [
        "ONNX Runtime is left out: it needs the package onnxruntime: "
        "pip install 'freetickets[bench]'",
        "OpenVINO is left out: it needs the package openvino: pip install 'freetickets[bench]'",
        "torch.compile is left out: it needs a C++ compiler that works (no compiler)",
    ]


@pytest.mark.parametrize(
    ("name", "package"), [("ONNX Runtime", "onnxruntime"), ("OpenVINO", "openvino")]
)
def test_a_rival_predicts_what_the_network_does(name, package):
    pytest.importorskip("onnx")
    pytest.importorskip(package)
    network, topology = infer.make_network("wrn-10-1")
    assert topology == {}
    x = torch.randn(2, 3, 32, 32)
    infer.checked(name, infer.RIVALS[name](network, x, 1), network, x)


def test_a_side_that_predicts_otherwise_or_is_not_compiled_is_refused(monkeypatch, refused):
    network, _ = infer.make_network("wrn-10-1")
    x = torch.randn(2, 3, 32, 32)
    for factor, words in ((1.01, "the thing does not predict what the"), (torch.nan, "error nan")):
        refused(words, infer.checked, "the thing", lambda by=factor: by * network(x), network, x)
    monkeypatch.setattr(infer, "compile_network", lambda network, topology: network)
    refused("wrn-10-1 can't be compiled", infer.member_side, "wrn-10-1", 0.8, x)
