"""Mistakes on the command line are answered at once: one line, without waiting for torch."""

import json
import re
import subprocess
import sys

import pytest

from freetickets.methods import METHODS

# Runs a command in a process in which importing torch is an error.
_WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "lightning_fabric", "safetensors"):
            raise AssertionError(f"{name} was imported")
sys.meta_path.insert(0, Refuse())
from freetickets.cli import main
for line in sys.stdin:
    import contextlib, io, json
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(json.loads(line))
        except SystemExit as stop:
            code = stop.code or 0
        except AssertionError as error:
            code = str(error)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""

MISTAKES = [
    ("trian", "invalid choice: 'trian'"),
    ("train edst --epohcs 3", "unknown flag --epohcs: did you mean --epochs?"),
    ("train edst --escaperate 3", "unknown flag --escaperate: did you mean --escape-rate?"),
    ("evaluate x --devise cpu", "unknown flag --devise: did you mean --device?"),
    ("train edts", "unknown method 'edts': did you mean 'edst'?"),
    ("train edst --model wnr-28-10", "unknown model 'wnr-28-10': did you mean 'wrn-28-10'?"),
    ("train edst --model wrn-27-10", "its depth must be 6n + 4, not 27: the nearest is 28"),
    ("plan edst --dataset cifar-10", "unknown dataset 'cifar-10': did you mean 'cifar10'?"),
    ("train edst --dataset nowhere/x.npz", "no data set at nowhere/x.npz"),
    ("train edst --epochs many", "argument --epochs: invalid float value: 'many'"),
    ("train edst --epochs inf", "epochs must be a finite number, not inf"),
    ("train edst --lr-factors norm-bias", "--lr-factors: give names and factors, such as"),
    ("train edst --nesterov --momentum 0", "nesterov needs momentum: give --momentum 0.9"),
    ("train edst --validation 1", "validation must be a share below 1, not 1.0"),
    ("train edst --sparsity 1", "sparsity must lie between 0 and 1, not 1.0"),
    ("train edst --preset paper --validation 0", "hold some out"),
    ("train edst extra", "unrecognized arguments: extra"),
    ("train --config none.yaml", "can't read none.yaml"),
    ("plan pf --finetune inf", "finetune must be a finite number, not inf"),
    ("plan ltr --criterion snip", "ltr finds its mask by training"),
    ("plan edst --explorer top-kast", "edst can't escape with top-kast"),
    ("plan dst --grow gradients", "did you mean 'gradient'?"),
    ("methods --model wnr-28-10", "unknown model 'wnr-28-10': did you mean 'wrn-28-10'?"),
    ("train --config", "argument --config: expected one argument"),
    ("bench", "required: what"),
    ("bench train --only mask", "unknown measurement of bench train 'mask': did you mean 'masks'?"),
    ("bench kernels --only wide --only smll", "did you mean 'small'?"),
    ("bench kernels --repeats 0", "--repeats: give 1 or more, not 0"),
    ("bench infer --model wrn-27-10", "its depth must be 6n + 4, not 27"),
    ("bench kernels --model wrn-10-1", "--model is for bench train, bench profile and"),
    ("bench kernels --figure x.svg", "--figure is only for bench train"),
]

ANSWERED = ["", "--help", "--version", "train edst --help", "plan dense --help", "methods"]
ANSWERED += ["reproduce --list", "datasets --json", "models --json", "train --help"]
ANSWERED += ["evaluate --help", "predict --help", "report --help", "bench --help"]
ANSWERED += ["reproduce --help"]


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """The answers to all commands, given by one process that can't import torch."""
    commands = [*(command for command, _ in MISTAKES), *ANSWERED]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH],
        input="\n".join(json.dumps(command.split()) for command in commands), capture_output=True,
        text=True, check=True, cwd=tmp_path_factory.mktemp("empty"),
    )  # fmt: skip
    answers = map(json.loads, done.stdout.splitlines())
    return dict(zip(commands, answers, strict=True))


def test_mistakes_and_help_come_without_torch_with_options_and_defaults(without_torch):
    for command, message in MISTAKES:
        code, out, err = without_torch[command]
        assert (code, out) == (2, ""), command
        (line,) = err.splitlines()
        assert line.startswith("freetickets: ")
        assert message in line
    for command in ANSWERED:
        code, out, err = without_torch[command]
        assert (code, err) == (0, ""), command
        assert out
    text = " ".join(without_torch["train edst --help"][1].split())
    assert "options of edst" in text
    assert "--escape-rate FLOAT" in text
    assert re.search(r"--sparsity FLOAT .*?\(default: 0\.8\)", text)
    assert re.search(r"-b INT, --batch-size INT|-b, --batch-size INT", text)
    assert "--escape-rate" not in without_torch["plan dense --help"][1]


def test_a_process_of_its_own_answers_alike(tmp_path):
    command = [sys.executable, "-m", "freetickets", "train", "edst", "--modle", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "freetickets: unknown flag --modle: did you mean --model?\n"
    assert not list(tmp_path.iterdir())


def test_the_keys_of_lists_are_stable_and_every_listed_method_has_a_plan(cli):
    for command, keys in (
        ("methods", ["name", "summary", "paper"]),
        ("datasets", ["name", "images", "shape", "classes", "description", "source"]),
        ("models", ["name", "description"]),
    ):
        rows = json.loads(cli(command, "--json").out)
        assert rows
        assert all(list(row) == keys for row in rows)
        plain = cli(command).out.splitlines()
        assert len(plain) == len(rows) + 1
        assert plain[0].split() == [key.upper() for key in keys]
    names = [row["name"] for row in json.loads(cli("methods", "--json").out)]
    assert names == list(METHODS)
    for name in names:
        answer = cli("plan", name, "--model", "mlp-8")
        assert answer.code == 0
        assert f"{name}: mlp-8 on fashion-mini" in answer.out
    assert cli("plan", "", "edst").code == 2


@pytest.mark.parametrize("command", ["models", "plan edst", "train --help"])
def test_a_reader_that_leaves_early_causes_no_traceback(command):
    words = [sys.executable, "-m", "freetickets", *command.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe) as process:
        process.stdout.close()  # before anything is written: each write fails
        assert process.stderr.read() == b""
