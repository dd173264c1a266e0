"""The kinds of files that FreeTickets loads: how a valid one is made, and what loads it."""

import contextlib
import gzip
import io
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

import freetickets as ft
from freetickets.cli import main
from freetickets.config import Config, read_config, read_run_config
from freetickets.data import cifar, get_spec, load
from freetickets.data.fashion import read_idx
from freetickets.data.images import read_images
from freetickets.evaluation import Predictions
from freetickets.evaluation.summary import summarise
from freetickets.experiments import results
from freetickets.report.run import read_runs
from freetickets.ticket import Ticket
from freetickets.training.folder import Checkpoints

TRAINING = "--model mlp-8 --epochs 2 --tickets 2 --interval 4 --batch-size 16 --backend masked"
_CIFAR_IMAGES = 4
_IMAGES = tuple(f"image.{kind}" for kind in ("png", "jpg", "gif", "bmp", "webp", "tif", "ppm"))


@dataclass(frozen=True)
class Kind:
    """One kind of files."""

    make: Callable[[Path, int], None]  # writes a valid folder, given its number: two of them differ
    files: tuple[str, ...]  # which files of the folder are damaged
    load: Callable[[Path], Any]  # reads the folder and returns all that is in it
    sealed: bool = True  # whether the files carry a checksum, so that no change may pass unseen
    # Those that say which run they are of: another run's in their place must be refused.
    owned: tuple[str, ...] = ()


# ---- what a run leaves behind


def _samples(number: int, count: int = 48) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    return rng.integers(0, 256, (count, 6, 6), dtype=np.uint8), np.arange(count) % 3


def _make_npz(folder: Path, number: int) -> None:
    (x_train, y_train), (x_test, y_test) = _samples(number), _samples(number + 100, 24)
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    arrays["classes"] = np.array(["a", "b", "c"])
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]


def _load_npz(folder: Path) -> Any:
    spec = get_spec(folder / "data.npz")
    return spec, *(_arrays(load(spec, split)) for split in ("train", "test"))


def _arrays(split: Any) -> Any:
    return split.inputs, split.labels


@cache
def trained(home: Path, number: int) -> Path:
    """A real run below a home, trained once for all kinds; its data is `data.npz` there."""
    folder = home / f"run-{number}"
    _make_npz(home, number=7)
    command = ["train", "edst", "--dataset", str(home / "data.npz"), *TRAINING.split()]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main([*command, "--seed", str(number), "--quiet", "--output", str(folder)])
    assert code == 0
    images, labels = _samples(number)
    x = images[:, None]
    fitted = ft.load(folder).calibrate(x, labels).cascade(x, labels)
    fitted.save(home / f"ensemble-{number}")
    return folder


def _make_run(folder: Path, number: int) -> None:
    shutil.copytree(trained(folder.parents[1], number), folder, dirs_exist_ok=True)


def _make_checkpoint(folder: Path, number: int) -> None:
    _make_run(folder, number)
    *others, last = sorted((folder / "checkpoint").iterdir())
    last.replace(folder / _CHECKPOINT)
    for file in set(others) - {folder / _CHECKPOINT}:
        file.unlink()


_FITTED = ("calibration.json", "cascade.json")


def _make_ensemble(folder: Path, number: int) -> None:
    _make_run(folder, number)
    source = folder.parents[1] / f"ensemble-{number}"
    for name in _FITTED:
        shutil.copy(source / name, folder / name)


def _load_run(folder: Path) -> Any:
    runs = read_runs([folder])
    return runs, [run.load_predictions() for run in runs], runs[0].results


def _load_ensemble(folder: Path) -> Any:
    ensemble = ft.load(folder)
    return ensemble.tickets, ensemble.temperature


def _make_record(folder: Path, number: int) -> None:
    record = {
        "cell": "some-cell", "seed": number, "method": "edst", "options": {"sparsity": 0.8},
        "ledger": {"members": 2, "relative_flops": 0.5 + number},
        "metrics": {"ensemble": {"accuracy": 0.75, "nll": 0.25 * number}},
        "first": {"1": {"accuracy": 0.5}},
    }  # fmt: skip
    results.save(folder, record)


# ---- data of others


def _make_cifar(folder: Path, number: int) -> None:
    rng = np.random.default_rng(number)
    content = {
        "data": rng.integers(0, 256, (_CIFAR_IMAGES, 3072), dtype=np.uint8),
        "labels": rng.integers(0, 10, _CIFAR_IMAGES).tolist(),
        "filenames": [f"{i}.png" for i in range(_CIFAR_IMAGES)],
    }
    (folder / "cifar-10-batches-py").mkdir()
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, protocol=4))


def _load_cifar(folder: Path) -> Any:
    few = replace(cifar.LAYOUTS["cifar10"], images={"train": 0, "test": _CIFAR_IMAGES})
    with mock.patch.dict(cifar.LAYOUTS, cifar10=few):
        return _arrays(load("cifar10", "test", folder, download=False))


def _make_svhn(folder: Path, number: int, packed: bool = True) -> None:
    from scipy.io import savemat

    rng = np.random.default_rng(number)
    images, labels = rng.integers(0, 256, (32, 32, 3, 3), np.uint8), rng.integers(1, 11, (3, 1))
    savemat(folder / "test_32x32.mat", {"X": images, "y": labels}, do_compression=packed)


def _load_svhn(folder: Path) -> Any:
    return _arrays(load("svhn", "test", folder, download=False))


def _make_idx(folder: Path, number: int) -> None:
    images, _ = _samples(number, 10)
    content = bytes((0, 0, 8, 3)) + np.array(images.shape, ">i4").tobytes() + images.tobytes()
    (folder / "raw").write_bytes(content)
    (folder / "packed.gz").write_bytes(gzip.compress(content, mtime=0))


def _make_images(folder: Path, number: int) -> None:
    image = Image.fromarray(np.random.default_rng(number).integers(0, 256, (9, 8, 3), np.uint8))
    for name in _IMAGES:
        image.save(folder / name)


def _make_npy(folder: Path, number: int) -> None:
    np.save(folder / "x.npy", np.random.default_rng(number).normal(size=(5, 4)).astype("f4"))


def _make_config(folder: Path, number: int) -> None:
    config = Config(seed=number, epochs=3, options={"tickets": 2, "sparsity": 0.8})
    (folder / "mine.yaml").write_text(config.as_yaml())


# A damaged checkpoint is passed over aloud, which has no consequence where there is only one.
_RUN = ("config.yaml", "ledger.json", "metrics.json", "log.csv", "predictions/data.npz")
_SAVED = "predictions/data.npz"
_TICKET, _CHECKPOINT = "tickets/01.safetensors", "checkpoint/000001.safetensors"

KINDS = {
    "ticket": Kind(_make_run, (_TICKET,), lambda f: Ticket.load(f / _TICKET)),
    "checkpoint": Kind(
        _make_checkpoint,
        (_CHECKPOINT,),
        lambda f: Checkpoints(f / "checkpoint", lambda _: None).load(),
    ),
    "predictions": Kind(_make_run, (_SAVED,), lambda f: Predictions.load(f / _SAVED)),
    "run": Kind(_make_run, _RUN, _load_run, owned=_RUN),
    "settings": Kind(_make_run, ("config.yaml",), read_run_config),
    "summary": Kind(_make_run, (_SAVED, "predictions/networks.json"), summarise, owned=(_SAVED,)),
    "ensemble": Kind(
        _make_ensemble,
        (_TICKET, "tickets/02.safetensors", *_FITTED),
        _load_ensemble,
        owned=(_TICKET,),
    ),
    "record": Kind(
        _make_record, ("results/some-cell/1.json",), lambda f: results.Results.load(f).records
    ),
    "npz": Kind(_make_npz, ("data.npz",), _load_npz),
    "cifar": Kind(_make_cifar, ("cifar-10-batches-py/test_batch",), _load_cifar, sealed=False),
    "svhn": Kind(_make_svhn, ("test_32x32.mat",), _load_svhn),
    "svhn-unpacked": Kind(
        partial(_make_svhn, packed=False), ("test_32x32.mat",), _load_svhn, sealed=False
    ),
    "idx": Kind(_make_idx, ("raw",), lambda f: read_idx(f / "raw", (10, 6, 6)), sealed=False),
    "idx-gz": Kind(_make_idx, ("packed.gz",), lambda f: read_idx(f / "packed.gz", (10, 6, 6))),
    "image": Kind(
        _make_images, _IMAGES, lambda f: read_images(f, (3, 9, 8), resize=True), sealed=False
    ),
    "npy": Kind(_make_npy, ("x.npy",), lambda f: read_images(f / "x.npy", (4, 1, 1)), sealed=False),
    "config": Kind(
        _make_config, ("mine.yaml",), lambda f: read_config(f / "mine.yaml"), sealed=False
    ),
}
