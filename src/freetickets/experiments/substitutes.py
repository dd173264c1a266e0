"""Substitutes on disk, laid out as a data root: what a scale takes for the paper's images."""

import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .. import data
from ..data import DatasetSpec, Split, get_spec
from ..data.corruptions import SEVERITIES, chosen, set_name
from ..data.decode import match_shape
from ..data.spec import data_root
from ..errors import FreeTicketsError
from ..evaluation import Request
from ..storage import write_atomic
from .experiment import Needs
from .scales import DataPart, Scale, Substitute

Images = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_NOISE = "gaussian-noise"  # an OoD set that is made, not read
_EMBEDDED = "fashion-mini"  # stands for OoD sets that are missing


def settle(scale: Scale, data_dir: str | None) -> tuple[Scale, list[str]]:
    """The scale with what is really here, and a line for each data set that is missing."""
    substitutes, said = {}, []
    for key, substitute in scale.substitutes.items():
        while (other := substitute.fallback) and not is_here(substitute.data.source, data_dir):
            missing = f"{substitute.data.source} is not in the data folder (--data-dir)"
            said.append(f"{missing}: {other.data.source} stands for {key}")
            substitute = other
        substitutes[key] = substitute
    return replace(scale, substitutes=substitutes), said


@lru_cache
def is_here(name: str, data_dir: str | None) -> bool:
    """Whether a data set can be read without a download."""
    try:
        data.load(name, "test", data_dir, download=False)
    except FreeTicketsError:
        return False
    return True


def outline(part: DataPart, data_dir: str | None = None) -> DatasetSpec:
    """What a substitute will be, before it is made."""
    spec = get_spec(part.source, data_dir)
    channels, height, width = spec.shape
    classes = len(spec.classes)
    train = part.per_class * classes if part.per_class else part.train or spec.train_size
    test = part.held_out * classes if part.held_out else part.test or spec.test_size
    train, test = min(train, spec.train_size), min(test, spec.test_size)
    shape = channels, height // part.pool, width // part.pool
    return replace(spec, shape=shape, train_size=train, test_size=test)


class SubstituteFiles:
    """The files of substitutes that a scale has in a folder; data sets lie in `data_dir`."""

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        self.folder, self._data_dir = Path(folder), data_dir

    def dataset(self, part: DataPart) -> str:
        """The name or the file of the data that a cell is trained on."""
        if part.is_whole:
            return part.source
        path = self.folder / f"{part.file}.npz"
        if not path.exists():
            x, y = self._part(part, "train")
            x_test, y_test = self._part(part, "held out" if part.held_out else "test")
            arrays = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
            arrays["classes"] = np.array(get_spec(part.source, self._data_dir).classes)
            _write(path, partial(np.savez_compressed, **arrays))  # type: ignore[arg-type]
        return str(path)

    def root(self, part: DataPart) -> str | None:
        """The data root of what a cell is evaluated on."""
        return self._data_dir if part.is_whole else str(self.folder)

    def corrupt(self, substitute: Substitute, names: Iterable[str]) -> None:
        """Makes the corrupted twin of the test images."""
        if substitute.data.is_whole:
            return
        from ..data.corruptions.folder import CorruptedSet
        from ..data.corruptions.frost import find_frost

        inside, file = self._inside(substitute), substitute.data.file
        images = np.ascontiguousarray(inside.inputs.numpy().transpose(0, 2, 3, 1))
        images, labels = images[..., 0] if images.shape[3] == 1 else images, inside.labels.numpy()
        folder, frost = self.folder / set_name(f"{file}.npz"), find_frost(None, self._data_dir)
        twin = CorruptedSet(folder, file, images, labels, SEVERITIES, 0, frost)
        for name in chosen(list(names)):
            if not twin.has(name):
                deque(twin.write(name), maxlen=0)

    def ood(self, substitute: Substitute, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """What evaluation is to take for OoD sets, and what that is; never its own images."""
        if substitute.real:
            others = (name for name in names if name != substitute.data.source)
            names = [name for name in others if name == _NOISE or is_here(name, self._data_dir)]
        whole = substitute.data.is_whole
        return {name: (name, name) if whole else self._unknown(substitute, name) for name in names}

    def natural(self, substitute: Substitute) -> Path | None:
        """The folder of ImageNet-A, or of what stands for it; None if nothing does."""
        if substitute.data.is_whole:
            path = data_root(self._data_dir) / "imagenet-a"
            return path if path.is_dir() else None
        if not substitute.natural:
            return None
        from PIL import Image

        folder = self.folder / f"{substitute.data.file}-turned" / "imagenet-a"
        classes = get_spec(self.dataset(substitute.data)).classes
        inside = self._inside(substitute)
        # Some of the classes, as ImageNet-A has; a folder can't be called T-shirt/top.
        few = [label for label, name in enumerate(classes) if "/" not in name][::2]
        for number, (pixels, label) in enumerate(zip(inside.inputs, inside.labels, strict=True)):
            path = folder / classes[int(label)] / f"{number}.png"
            if int(label) in few and not path.exists():
                turned = np.rot90(pixels.numpy(), axes=(1, 2))
                turned = turned[0] if len(turned) == 1 else turned.transpose(1, 2, 0)
                image = Image.fromarray(np.ascontiguousarray(turned))
                _write(path, partial(image.save, format="PNG"))
        return folder

    def _unknown(self, substitute: Substitute, name: str) -> tuple[str, str]:
        """The real set where it is here, else embedded images, changed if they are known."""
        if name == _NOISE:
            return name, name
        known, source, change = substitute.data.source, _EMBEDDED, "shuffled tiles"
        if name != known and is_here(name, self._data_dir):
            source, change = name, "plain"
        elif name == "svhn":
            change = "negatives" if known == _EMBEDDED else "plain"
        path = self.folder / f"{substitute.data.file}-ood" / change / source / f"{name}.npy"
        if not path.exists():
            inside = self._inside(substitute)
            split = data.load(source, "test", self._data_dir, download=False)
            assert isinstance(split, Split)
            count = substitute.unknown or substitute.samples or len(inside)
            images = _CHANGES[change](split.inputs[:count].numpy())
            images = match_shape(images, tuple(inside.inputs.shape[1:]), source, resize=True)
            _write(path, lambda file: np.save(file, images.transpose(0, 2, 3, 1)))
        return str(path), source if change == "plain" else f"{change} of {source}"

    def _inside(self, substitute: Substitute) -> Split:
        split = data.load(self.dataset(substitute.data), "test", self._data_dir)
        assert isinstance(split, Split)
        count = substitute.samples or len(split)
        return Split(split.inputs[:count], split.labels[:count])

    def _part(self, part: DataPart, which: str) -> tuple[Images, Numbers]:
        whole = data.load(part.source, "test" if which == "test" else "train", self._data_dir)
        assert isinstance(whole, Split)
        labels = whole.labels.numpy()
        numbers = np.arange(len(labels))[: part.test if which == "test" else part.train]
        if which == "held out":
            numbers = of_each_class(labels, -int(part.held_out or 0))
            if part.per_class and set(numbers) & set(of_each_class(labels, part.per_class)):
                raise FreeTicketsError(f"{part.text}: some images would be in both")
        elif which == "train" and part.per_class:
            numbers = of_each_class(labels, part.per_class)
            if part.digest not in (None, digest_of(numbers)):
                raise FreeTicketsError(
                    f"{part.text}: not the images of the list; get {part.source} again"
                )
        images = pool(whole.inputs[numbers].numpy(), part.pool)
        return images.transpose(0, 2, 3, 1), labels[numbers]


def requests_for(
    substitute: Substitute, needs: Needs, members: int, substitutes: SubstituteFiles
) -> tuple[list[Request], list[str]]:
    """What evaluation is asked for, set by set, and what is said of it; missing sets are made."""
    limited = Request(samples=substitute.samples, resize=True)
    unknown = replace(limited, samples=substitute.unknown or substitute.samples)
    requests, notes = [], []
    if needs.corruptions:
        substitutes.corrupt(substitute, needs.corruptions)
        requests.append(replace(limited, corruptions=needs.corruptions))
    found = substitutes.ood(substitute, needs.ood)
    requests += [replace(unknown, ood=(source,)) for source, _ in found.values()]
    notes += [f"{words} stands for {name}" for name, (_, words) in found.items() if words != name]
    missing = [n for n in needs.ood if n not in found and n != substitute.data.source]
    if needs.attacks:
        requests.append(replace(limited, attacks=needs.attacks))
    if needs.features and members > 1:
        requests.append(replace(limited, features=True))
    if needs.imagenet_a:
        if (folder := substitutes.natural(substitute)) is None:
            missing.append("imagenet-a")
        else:
            requests.append(replace(limited, imagenet_a=str(folder)))
            if not substitute.data.is_whole:
                notes.append("turned test images of some classes stand for imagenet-a")
    return requests, notes + [f"left out: {n}, which is not in the data folder" for n in missing]


def of_each_class(labels: Numbers, count: int) -> Numbers:
    """The numbers of the first images of each class, or the last if the count is negative."""
    which = slice(count) if count > 0 else slice(count, None)
    found = [np.flatnonzero(labels == label)[which] for label in np.unique(labels)]
    if any(len(each) < abs(count) for each in found):
        raise FreeTicketsError(f"some class has fewer than {abs(count):,} images")
    return np.sort(np.concatenate(found))


def digest_of(numbers: Numbers) -> str:
    """A digest of the numbers of images."""
    return hashlib.sha256(numbers.astype("<u4").tobytes()).hexdigest()[:16]


def pool(images: Images, side: int) -> Images:
    """Averages squares of pixels of images (N, C, H, W), rounded to 8 bits."""
    if side == 1:
        return images
    count, channels, height, width = images.shape
    if height % side or width % side:
        raise FreeTicketsError(f"images of {height}x{width} can't be pooled by {side}")
    squares = images.reshape(count, channels, height // side, side, width // side, side)
    means: Images = np.rint(squares.mean(axis=(3, 5), dtype=np.float64)).astype(np.uint8)
    return means


_CHANGES: Mapping[str, Callable[[Images], Images]] = {
    "plain": lambda images: images,
    "negatives": lambda images: 255 - images,
    # Quarters in another order: the same pixels, and nothing that one could wear.
    "shuffled tiles": lambda images: np.roll(
        images, (images.shape[2] // 2, images.shape[3] // 2), axis=(2, 3)
    ),
}


def _write(path: Path, save: Callable[[io.BytesIO], None]) -> None:
    buffer = io.BytesIO()
    save(buffer)
    write_atomic(path, buffer.getvalue())
