"""What is kept of a run's predictions beside its record: the answers to each test image."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.npz import read_arrays, read_headers
from ..errors import DamagedFileError, FreeTicketsError
from ..metrics.arrays import top_class
from ..metrics.calibration import DEFAULT_BINS, bin_edges, bin_sums
from ..metrics.uncertainty import auroc
from ..predictions import Predictions
from ..reading import damaged
from ..seal import digest_file
from ..storage import write_atomic

Array = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]

TEST = "test"  # what `unknown` calls the test images themselves
# Scores of sets of changed images: the set, and the score.
_PARTS = {
    "c_accuracy": ("corruptions", "accuracy"), "c_nll": ("corruptions", "nll"),
    "attacks.fgsm.mean": ("fgsm", "accuracy"), "attacks.pgd.mean": ("pgd", "accuracy"),
}  # fmt: skip
_STEPS = 65535  # of a confidence: 1/15, the width of a bin, is a whole number of them


@dataclass(frozen=True)
class Shifted:
    """Sums over the changed versions of each image, corruptions or attacks; see `Answers`."""

    versions: int
    correct: Classes  # how many versions were answered right, (M + 1, N)
    log_likelihood: Array  # the sum over them, of the true class, (M + 1, N)


@dataclass(frozen=True)
class Answers:
    """What was said of each image. Rows are the members, in order, and last the ensemble."""

    labels: Classes  # of the test images, (N,)
    predicted: Classes  # the most probable class, (M + 1, N)
    confidence: Array  # its probability, (M + 1, N)
    log_likelihood: Array  # of the true class, (M + 1, N)
    # How unknown each image is to the ensemble: by OoD set, and "test", by score of novelty, (K,).
    unknown: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    # By the name of a set of changed images, the first of the test set: "corruptions", "fgsm".
    shifted: Mapping[str, Shifted] = field(default_factory=dict)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether the answer is right, (M + 1, N)."""
        return self.predicted == self.labels

    def scores(self) -> list[dict[str, float]]:
        """Accuracy, NLL and ECE of each member and, last, of the ensemble."""
        found = []
        rows = zip(self.correct, self.log_likelihood, self.confidence, strict=True)
        for correct, logs, confidence in rows:
            _, sure, right = bin_sums(confidence, correct)
            ece = np.abs(sure - right).sum() / len(confidence)
            found.append({"accuracy": correct.mean(), "nll": -logs.mean(), "ece": ece})
        return [{key: float(value) for key, value in each.items()} for each in found]

    def added(self, column: str, members: int | None = None) -> Array | None:
        """What each image adds to a column of a run, (N,); None if that is no mean over images.

        Of the first `members` only one is known alone.
        """
        key = column.removeprefix("member_")
        if members in (None, len(self.predicted) - 1):
            rows = slice(None, -1) if key != column else slice(-1, None)
        elif members == 1:
            rows = slice(1)
        else:
            return None
        if key == "diversity.disagreement":
            pairs = list(itertools.combinations(self.predicted[:-1], 2))
            return (
                np.mean([a != b for a, b in pairs], axis=0) if pairs and rows.stop is None else None
            )
        part, name = _PARTS.get(key, (None, key))
        of: Answers | Shifted | None = self if part is None else self.shifted.get(part)
        if of is None or name not in ("accuracy", "nll"):
            return None
        values = of.correct if name == "accuracy" else -of.log_likelihood
        versions = of.versions if isinstance(of, Shifted) else 1
        return np.asarray(values[rows].mean(0) / versions)

    def drawn(self, column: str, value: float | None, repeats: int = 1000) -> Array | None:
        """A column of the whole run on images that are drawn again; the same ones of equal tests.

        `value` is the column's own, by which it is told whether all test images were compared.
        """
        test, count = np.random.default_rng(0), len(self.labels)
        if column == "ece":
            gaps = self.correct[-1] - self.confidence[-1]
            bins = np.searchsorted(bin_edges(DEFAULT_BINS)[1:-1], self.confidence[-1], side="left")
            draws = (test.integers(0, count, count) for _ in range(repeats))
            sums = (np.bincount(bins[draw], weights=gaps[draw]) for draw in draws)
            return np.array([np.abs(each).sum() / count for each in sums])
        kind, _, name = column.partition(".")
        name, _, score = name.partition(".")
        if kind != "ood" or score != "auroc" or name not in self.unknown or value is None:
            return None
        inside, outside = (self.unknown[of]["max_probability"] for of in (TEST, name))
        for known in (inside, inside[: len(outside)]):
            if abs(auroc(known, outside) - value) < 1e-3:
                return _drawn_areas(known, outside, test, repeats)
        return None

    @classmethod
    def collect(cls, folder: Path) -> Answers:
        """Takes them from the saved predictions of a run."""
        from ..evaluation.summary import novelties, saved_sets, saved_test

        test = saved_test(folder)
        shifted: dict[str, list[Predictions]] = {}
        for kind, name in (("shift", "corruptions"), ("attack", "")):
            for path in saved_sets(folder, test, kind):
                shifted.setdefault(name or path.stem, []).extend(Predictions.load(path).parts)
        unknown = {path.stem: Predictions.load(path) for path in saved_sets(folder, test, "ood")}
        return cls(
            test.labels,
            *_said(test),
            {name: novelties(saved) for name, saved in ({TEST: test} | unknown).items()},
            {name: _summed(parts) for name, parts in shifted.items()},
        )

    def save(self, path: Path) -> str:
        """Writes them, packed: scores stay exact to 4 digits. Returns the digest of the file."""
        small = np.min_scalar_type(int(max(self.labels.max(), self.predicted.max())))
        arrays: dict[str, npt.NDArray[Any]] = {
            "labels": self.labels.astype(small),
            "predicted": self.predicted.astype(small),
            "confidence": np.rint(self.confidence * _STEPS).clip(0, _STEPS).astype(np.uint16),
            "log_likelihood": _rounded(self.log_likelihood),
        }
        for name, scores in self.unknown.items():  # between 0 and the log of the classes
            arrays |= {f"unknown/{name}/{k}": each.astype(np.float16) for k, each in scores.items()}
        for name, it in self.shifted.items():
            arrays[f"shifted/{name}/versions"] = np.array(it.versions)
            arrays[f"shifted/{name}/correct"] = it.correct.astype(np.min_scalar_type(it.versions))
            arrays[f"shifted/{name}/log_likelihood"] = it.log_likelihood.astype(np.float32)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        write_atomic(path, buffer.getvalue())
        return digest_file(path)

    @classmethod
    def load(cls, path: Path, digest: str | None = None) -> Answers:
        """Reads what `save` wrote; `digest` is what it returned, None to take any whole file."""
        if not path.exists():
            raise FreeTicketsError(f"{path} is missing: it holds the answers to each test image")
        if digest is not None and digest_file(path) != digest:
            raise DamagedFileError(f"{path} is damaged, or of another training than its record")
        with damaged(path):
            names = list(read_headers(path))
            return cls._unpack(dict(zip(names, read_arrays(path, *names), strict=True)))

    @classmethod
    def _unpack(cls, packed: Mapping[str, npt.NDArray[Any]]) -> Answers:
        found: dict[str, Any] = {"unknown": {}, "shifted": {}}
        for key, values in packed.items():
            *path, name = key.split("/")
            place = found
            for word in path:
                place = place.setdefault(word, {})
            place[name] = values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)
        for name, sums in found["shifted"].items():
            found["shifted"][name] = Shifted(**{**sums, "versions": int(sums["versions"])})
        found["confidence"] = found["confidence"] / _STEPS
        return cls(**{each.name: found[each.name] for each in fields(cls)})


def measure(folder: str | Path, row_members: Iterable[int | None] = ()) -> dict[str, Any]:
    """The parts "metrics" and "first" of a record; the other sets too of `row_members`."""
    from ..evaluation.summary import evaluation_of_first, summarise

    metrics, wanted, first = summarise(folder), set(row_members), {}
    # Where the data lies is nobody's concern, nor is a digest of that.
    metrics["dataset"] = Path(metrics["dataset"]).name
    metrics.pop("settings", None)
    for size in range(1, len(metrics["members"]) + 1):
        scores = evaluation_of_first(folder, size, sets=size in wanted).as_dict()
        diversity = scores.get("diversity", {})
        first[str(size)] = {
            **scores["ensemble"],
            **{f"member_{key}": scores["member_mean"][key] for key in ("accuracy", "nll", "ece")},
            **{k: diversity[k] for k in ("disagreement", "kl", "kl_one_way") if k in diversity},
            **{key: scores[key] for key in ("ood", "attacks") if key in scores},
        }
    return {"metrics": metrics, "first": first}


def _said(saved: Predictions) -> tuple[Classes, Array, Array]:
    """Class, confidence and log-likelihood of the true class, (M + 1, N) each."""
    rows = [*(member[None] for member in saved.members()), saved.ensemble()]
    tops, confidences = zip(*map(top_class, rows), strict=True)
    at = np.arange(len(saved.labels)), saved.labels
    logs = np.stack([row[0][at] for row in rows])
    return np.stack(tops), np.stack(confidences), np.minimum(logs, 0.0)


def _drawn_areas(inside: Array, outside: Array, test: Any, repeats: int) -> Array:
    """AUROCs of drawn images, from how many of them lie at each level of novelty."""
    others = np.random.default_rng(1)
    levels, where = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    sides = (test, where[: len(inside)]), (others, where[len(inside) :])
    found = []
    for _ in range(repeats):
        known, unknown = (
            np.bincount(at[rng.integers(0, len(at), len(at))], minlength=len(levels))
            for rng, at in sides
        )
        below = np.cumsum(known) - known / 2
        found.append(below @ unknown / (len(inside) * len(outside)))
    return np.array(found)


def _summed(parts: list[Predictions]) -> Shifted:
    labels = parts[0].labels
    if any(not np.array_equal(part.labels, labels) for part in parts):
        raise FreeTicketsError("the changed versions of images have different labels")
    predicted, _, logs = zip(*map(_said, parts), strict=True)
    correct = np.sum(np.equal(predicted, labels), axis=0, dtype=np.int64)
    return Shifted(len(parts), np.asarray(correct), np.asarray(np.sum(logs, axis=0)))


def _rounded(values: Array) -> npt.NDArray[np.float32]:
    """In single precision, without the last 8 bits, which would not pack."""
    limit = float(np.finfo(np.float32).max) / 2
    bits = values.clip(-limit, limit).astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view(np.float32)
