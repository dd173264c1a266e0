import json

import pytest


@pytest.fixture
def planned(cli):
    """What `plan --json` says, as JSON."""
    return lambda *words: json.loads(cli("plan", *words, "--json").out)


def test_json_keys_are_stable_and_the_table_says_what_it_costs(planned, cli):
    found = planned("edst", "--model", "mlp-8")
    (run,) = found["plan"]["runs"]
    phase, ledger = run["phases"][0], found["ledger"]
    costs = "run phase epochs steps sparsity explorations flops growth_flops seconds"
    for each, keys in (
        (found, "plan ledger"),
        (found["plan"], "method runs dense_epochs sparse combine trainings"),
        (run, "seed phases start"),
        (phase, "name schedule sparsity exploration pruning at_end"),
        (ledger["phases"][0], costs),
    ):
        assert list(each) == keys.split()
    names = [phase["name"] for phase in run["phases"]]
    assert names == ["explore", "refine 1", "refine 2", "refine 3"]
    assert set(ledger) == {
        "relative_flops", "relative_growth_flops", "relative_test_flops", "flops", "seconds",
        "phases", "tickets", "members", "runs", "dense_epochs", "dense_flops",
        "dense_forward_flops", "test_flops", "parameters", "ticket_parameters", "ticket_bytes",
    }  # fmt: skip
    command = ["edst", "--model", "mlp-8", "--epochs", "9", "--preset", "paper"]
    lines = cli("plan", *command).out.splitlines()
    assert lines[0].strip() == "edst: mlp-8 on fashion-mini, batch 64"
    assert sum("refine" in line for line in lines) == 3
    relative = planned(*command)["ledger"]["relative_flops"]
    assert any(f"{relative:.3f}x of one dense model" in line for line in lines)
    assert any("paper: the authors' schedule" in line for line in lines)


def test_the_steps_of_a_plan_are_those_of_the_training(cli, planned, images_npz, tmp_path):
    flags = ["--dataset", images_npz, *["--model", "mlp-8", "--tickets", "1", "--validation", "0"]]
    # 120 samples in batches of 17 leave one over, on which BatchNorm could not train.
    flags += ["--batch-size", "17", "--epochs", "2"]
    plan = planned("dst", *flags)
    cli("train", "dst", *flags, "--quiet", "-o", tmp_path)
    spent = json.loads((tmp_path / "ledger.json").read_text())
    assert plan["ledger"]["phases"][0]["steps"] == spent["phases"][0]["steps"] == 14
    assert (tmp_path / "log.csv").read_text().splitlines()[-1].split(",")[3] == "14"


def test_the_fast_recipe_costs_what_a_count_by_hand_says(planned):
    command = "edst --recipe fast --dataset cifar10 --model mlp-64 --sparsity 0.75"
    ledger = planned(*command.split(), "--distribution", "uniform")["ledger"]
    # 50,000 images, none held out: 391 batches of 128. A dense training has 10 epochs, EDST 6 of
    # exploration and 4 for each of its tickets.
    assert [phase["steps"] for phase in ledger["phases"]] == [6 * 391, 4 * 391, 4 * 391, 4 * 391]
    # Every 100 steps, but not in the last 100 before the collections at 3910, 5474 and 7038.
    explorations = [len(range(100, 2346, 100)), 15, 14, 15]
    assert [phase["explorations"] for phase in ledger["phases"]] == explorations
    dense, sparse = 2 * (3072 * 64 + 64 * 10), 2 * (3072 * 16 + 16 * 10)
    assert ledger["dense_flops"] == 3 * dense * 50_000 * 10
    assert ledger["flops"] == pytest.approx(3 * sparse * 50_000 * 18)
    growth = (sum(explorations) + 2) * 128 * (dense - sparse)  # with two escapes
    assert ledger["relative_growth_flops"] == pytest.approx(growth / ledger["dense_flops"])
    assert ledger["relative_flops"] == pytest.approx(0.25 * 1.8)


def test_a_plan_that_hardly_explores_says_so_and_one_without_an_interval_explores_more(cli):
    few = ["plan", "dst", "--model", "mlp-16", "--train-samples", "500", "--json"]
    told, suited = cli(*few, "--interval", "280"), cli(*few)
    assert [p["explorations"] for p in json.loads(told.out)["ledger"]["phases"]] == [0, 0, 0]
    assert told.err.startswith("warning: a run of this plan explores its topology 0 times")
    assert told.err.count("\n") == 1
    assert all(p["explorations"] >= 10 for p in json.loads(suited.out)["ledger"]["phases"])
    assert suited.err == ""
