"""Print how much each corruption changes CIFAR-10, and draw them: corruption_table.py [SHEET.png].

The first 1,000 test images, seed 0, are corrupted. A number is the mean absolute change of a value,
of 255. Frost is laid from the pictures in the data root's folder frost, or synthetic (frost*).
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, ImageOps

from freetickets.data import LazySplit, load
from freetickets.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, find_frost

SAMPLES = 1000
SHOWN = (5, 9)  # a frog and a car
SCALE, LABEL, GAP = 2, 150, 3

Changes = dict[str, list[npt.NDArray[np.uint8]]]


def main(sheet: Path | None) -> None:
    """Print the table as Markdown, and perhaps draw the sheet."""
    data = load("cifar10", "test")
    assert not isinstance(data, LazySplit)
    images = np.ascontiguousarray(data.inputs[:SAMPLES].numpy().transpose(0, 2, 3, 1))
    frost = find_frost(None)
    changes = {
        name: [corrupt(images, name, severity, frost=frost) for severity in SEVERITIES]
        for name in CORRUPTIONS
    }
    changes["frost*"] = [corrupt(images, "frost", severity) for severity in SEVERITIES]
    print("| corruption | 1 | 2 | 3 | 4 | 5 | order |\n|---|---|---|---|---|---|---|")
    for name, corrupted in changes.items():
        means = [np.abs(each.astype(int) - images).mean() for each in corrupted]
        order = " < ".join(str(1 + place) for place in np.argsort(means))
        print(f"| {name} | {' | '.join(f'{mean:.1f}' for mean in means)} | {order} |")
    if sheet is not None:
        # Five bits a channel look the same at this size, in half the bytes.
        ImageOps.posterize(draw_sheet(images, changes), 5).save(sheet, optimize=True)


def draw_sheet(images: npt.NDArray[np.uint8], changes: Changes) -> Image.Image:
    """Draw one row a corruption: the images as they were, then the five severities."""
    cell = SCALE * images.shape[1] + GAP
    width = LABEL + len(SHOWN) * (1 + len(SEVERITIES)) * cell
    sheet = Image.new("RGB", (width, 24 + len(changes) * cell), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(15)
    for column, title in enumerate(("clean", *map(str, SEVERITIES)) * len(SHOWN)):
        pen.text((LABEL + column * cell + cell // 2, 12), title, "black", font, anchor="mm")
    for row, (name, corrupted) in enumerate(changes.items()):
        top = 24 + row * cell
        pen.text((6, top + cell // 2), name, "black", font, anchor="lm")
        shown = [each[number] for number in SHOWN for each in (images, *corrupted)]
        for column, image in enumerate(shown):
            large = ImageOps.scale(Image.fromarray(image), SCALE, Image.Resampling.NEAREST)
            sheet.paste(large, (LABEL + column * cell, top))
    return sheet


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
