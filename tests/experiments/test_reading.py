"""Experiment files are read strictly: a slip of the pen is one line that says what to do."""

import re
import subprocess
import sys

import pytest

from freetickets.experiments import Correction, Needs, cells, experiment_names, load, parse

GOOD = """
name: mine
title: A table of my own
paper: Table 99
latex: tab:mine
dataset: cifar10
model: wrn-28-10
columns: [accuracy, diversity.kl]
needs: {ood: [svhn], features: true}
rows:
  - label: a
    method: edst
    options: {sparsity: 0.9}
    paper: {accuracy: 96, diversity.kl: 0.2}
    corrected: {diversity.kl: {printed: 2.2, why: a slip}}
  - {label: b, method: dst, dataset: cifar100, over: {sparsity: [0.5, 0.8]}}
"""


def test_a_row_takes_what_it_lacks_from_its_experiment_and_has_a_cell_for_each_value():
    experiment = parse(GOOD)
    assert experiment.needs == Needs(ood=("svhn",), features=True)
    a, b = experiment.rows
    assert (a.dataset, a.model, a.method.name) == ("cifar10", "wrn-28-10", "edst")
    assert a.paper == {"accuracy": 96.0, "diversity.kl": 0.2}
    assert a.corrected == {"diversity.kl": Correction(2.2, "a slip")}
    assert (b.dataset, b.model, b.starred, b.members) == ("cifar100", "wrn-28-10", False, None)
    assert [cell.options["sparsity"] for cell in b.cells] == [0.5, 0.8]
    assert len(cells(experiment)) == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("latex:", "latx:", "unknown key 'latx': did you mean 'latex'?"),
        ("title: A table of my own", "", "it lacks title"),
        ("method: edst", "method: edts", "row 'a': unknown method 'edts': did you mean 'edst'?"),
        ("options: {s", "options: {ticket: 3, s", "row 'a': unknown option of edst 'ticket'"),
        ("sparsity: 0.9", "sparsity: 1.9", "row 'a': sparsity must lie between 0 and 1"),
        ("sparsity: 0.9", "sparsity: much", "row 'a': sparsity must be a number"),
        ("[0.5, 0.8]", "[0.5, 8]", "row 'b': sparsity must lie between 0 and 1"),
        ("[0.5, 0.8]", "0.5", "over.sparsity must be a list, not 0.5"),
        ("sparsity: [", "sparsty: [", "row 'b': unknown option of dst 'sparsty'"),
        ("columns: [acc", "columns: [akk", "unknown column 'akkuracy'"),
        ("{accuracy: 96", "{akkuracy: 96", "row 'a': unknown column 'akkuracy'"),
        ("{accuracy: 96", "{nll: 96", "row 'a': paper: add nll to the columns"),
        ("accuracy: 96", "accuracy: high", "paper.accuracy must be a number, not 'high'"),
        ("features: true", "features: 1", "needs.features must be true or false, not 1"),
        ("{ood:", "{odd:", "unknown key of needs 'odd'"),
        ("{ood: [svhn]", "{ood: [1]", "needs.ood[0] must be text, not 1"),
        ("model: wrn-28-10", "model: wrn-27-10", "row 'a': model 'wrn-27-10'"),
        ("dataset: cifar100", "dataset: cifar101", "row 'b': unknown dataset 'cifar101'"),
        ("label: b, method", "label: b, members: 4, method", "members must lie between 1 and 3"),
        ("corrected: {diversity.kl", "corrected: {nll", "unknown corrected column 'nll'"),
        ("printed: 2.2, why", "printed: 2.2, wye", "unknown key of corrected.diversity.kl 'wye'"),
        ("printed: 2.2, why: a slip", "printed: 2.2", "corrected.diversity.kl lacks why"),
        ("title:", "claims: [dst-beats-all]\ntitle:", "unknown claim 'dst-beats-all'"),
        ("title:", "figures: [clases]\ntitle:", "unknown part of a report 'clases'"),
        ("title:", "seeds: 0\ntitle:", "seeds must be at least 1, not 0"),
        ("label: a", "label: a\n    underivable: {nll: none}", "unknown column of the row 'nll'"),
        (GOOD, "rows: [", "mine.yaml is not valid YAML"),
        (GOOD, "just words", "must be a map, not 'just words'"),
    ],
)
def test_a_mistake_is_answered_in_one_line(old, new, message, refused):
    assert old in GOOD
    error = refused(re.escape(message), parse, GOOD.replace(old, new, 1), "mine.yaml")
    assert str(error).startswith("mine.yaml")


def test_an_unknown_name_offers_the_nearest(refused):
    refused("did you mean 'cifar100'", load, "cifar1000")


def test_names_and_files_come_without_torch():
    code = (
        "import sys; from freetickets.experiments import *; "
        "[load(name) for name in experiment_names()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert len(experiment_names()) == 20
