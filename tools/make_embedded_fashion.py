"""Make the embedded data set out of Fashion-MNIST: make_embedded_fashion.py FOLDER.

FOLDER holds the four files of Fashion-MNIST, as Debian's package dataset-fashion-mnist puts them
into /usr/share/datasets/fashion-mnist. Run it from the top of the checkout, the package installed.
The result is the same byte for byte whenever it is run with the same versions of Python and xz.
"""

import sys
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np

from freetickets.data.fashion import load_idx

TARGET = Path("src/freetickets/data/embedded/fashion_mini.npz")
EACH_CLASS: dict[Literal["train", "test"], int] = {"train": 1000, "test": 200}


def main(folder: Path) -> None:
    """Write the first images of each class, in their original order."""
    # LZMA is a seventh smaller than np.savez_compressed, and np.load reads it just as well.
    with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_LZMA) as archive:
        for split, count in EACH_CLASS.items():
            data = load_idx("fashion-mnist", split, folder, download=False)
            labels = data.labels.numpy().astype(np.uint8)
            first = [np.flatnonzero(labels == label)[:count] for label in range(10)]
            chosen = np.sort(np.concatenate(first))
            arrays = {f"x_{split}": data.inputs.numpy()[chosen, 0], f"y_{split}": labels[chosen]}
            for name, array in arrays.items():
                # Dated 1980: the time of making is no part of the data.
                member = zipfile.ZipInfo(f"{name}.npy")
                member.compress_type = zipfile.ZIP_LZMA
                with archive.open(member, "w") as file:
                    np.save(file, array)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
