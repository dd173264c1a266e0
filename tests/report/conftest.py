import pytest
import yaml

from freetickets.report.page import comparison_page
from freetickets.report.run import read_runs
from freetickets.seal import seal_text
from freetickets.storage import write_json

from .fake_runs import FAKES, write_fake, write_log

PHASES = (("explore", 2, ""), ("refine 1", 1, "collect escape"), ("refine 2", 1, "collect"))
DENSE = 1000.0  # FLOPs of one dense training


def scores(accuracy, nll=0.5, ece=0.03):
    return {"accuracy": accuracy, "nll": nll, "ece": ece}


def log_rows(phases=PHASES, runs=1, **changed):
    """One row an epoch; events at the end of their phase."""
    rows = []
    for run in range(1, runs + 1):
        epoch = 0
        for name, epochs, events in phases:
            for told in [""] * (epochs - 1) + [events]:
                epoch += 1
                row = {"run": run, "phase": name, "epoch": float(epoch), "step": 10 * epoch}
                row |= {"lr": 0.1 / epoch, "train_loss": 1 / epoch}
                row |= {"train_accuracy": 1 - 0.5 / epoch, "validation_loss": 1.1 / epoch}
                row |= {"validation_accuracy": 1 - 0.6 / epoch, "itop_rate": 0.1 * epoch}
                rows.append({**row, "events": told, "seconds": 2.0 * epoch, **changed})
    return rows


CONFIG = {"method": "edst", "options": {"tickets": 2, "sparsity": 0.8}}
CONFIG |= {"dataset": "tiny", "model": "mlp-30"}
METRICS = {
    "dataset": "tiny", "samples": 1234, "members": [scores(0.70, 0.60), scores(0.80, 0.50)],
    "member_mean": scores(0.75, 0.55), "ensemble": scores(0.85, 0.45, 0.02),
}  # fmt: skip
PHASE = {"run": 1, "sparsity": 0.8, "explorations": 7, "growth_flops": 1.0}
LEDGER = {
    "tickets": 2, "members": 2, "runs": 1, "dense_epochs": 5.0, "dense_flops": DENSE,
    "dense_forward_flops": 10.0, "test_flops": 4.0, "parameters": 100, "ticket_parameters": 20,
    "ticket_bytes": 2_500_000,
    "phases": [
        {**PHASE, "phase": name, "epochs": float(epochs), "steps": 1500 * epochs}
        | {"flops": 100.0 * epochs, "seconds": 3.0 * epochs}
        for name, epochs, _ in PHASES
    ],
}  # fmt: skip


def run_writer(root):
    """Returns what writes the folder of a finished EDST run of two tickets, with changes."""

    def write(name="edst", config=None, metrics=None, ledger=None, log=None):
        folder = root / name
        folder.mkdir(parents=True)
        settings = yaml.safe_dump({**CONFIG, **(config or {})})
        (folder / "config.yaml").write_text(seal_text(settings))
        write_json(folder / "metrics.json", {**METRICS, **(metrics or {})})
        write_json(folder / "ledger.json", {**LEDGER, **(ledger or {})})
        write_log(folder, log or log_rows())
        return folder

    return write


def write_dense_run(write):
    """Writes the folder of one dense network."""
    phase = {**LEDGER["phases"][0], "phase": "train", "sparsity": 0.0, "explorations": 0}
    phase |= {"flops": DENSE, "growth_flops": 0.0}
    alone = scores(0.82, 0.48)
    return write(
        "dense",
        config={"method": "dense", "options": {"tickets": 1}},
        metrics={"members": [alone], "member_mean": alone, "ensemble": alone},
        ledger=dict.fromkeys(("tickets", "members"), 1)
        | {"test_flops": 10.0, "ticket_bytes": 4_000_000, "phases": [phase]},
        log=log_rows([("train", 4, "collect")], itop_rate=None),
    )


@pytest.fixture
def write_run(tmp_path):
    """Write the folder of a finished EDST run of two tickets, with changes where asked."""
    return run_writer(tmp_path)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The folders of an EDST run and of a dense one."""
    write = run_writer(tmp_path_factory.mktemp("runs"))
    return [write(), write_dense_run(write)]


@pytest.fixture(scope="session")
def runs(folders):
    """Those two, read."""
    return read_runs(folders)


@pytest.fixture(scope="session")
def html(runs):
    """Those two on a page."""
    return comparison_page(runs).html()


@pytest.fixture(scope="session")
def full_folders(tmp_path_factory):
    """The folders of four runs with everything that an evaluation can write."""
    root = tmp_path_factory.mktemp("full")
    return [write_fake(root, fake) for fake in FAKES]


@pytest.fixture(scope="session")
def full_runs(full_folders):
    """Those four, read."""
    return read_runs(full_folders)


@pytest.fixture(scope="session")
def full_page(full_runs):
    """Those four on a page."""
    return comparison_page(full_runs)


@pytest.fixture(scope="session")
def full_html(full_page):
    """That page as HTML."""
    return full_page.html()
