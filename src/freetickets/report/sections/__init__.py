"""The sections of a comparison: `texts.yaml` says in which order, and what stands around them.

The maker of a section, the function of its name, takes a `Comparison` and yields what is shown;
what has no data is left out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import resources
from typing import cast

import yaml

from ..comparison import Comparison
from ..parts import Figure, Folded, Section, Shown, Table
from . import main, members, robustness

Maker = Callable[[Comparison], Iterable[Shown]]

_ROOMS = (main, members, robustness)

# By chapter and by key, which may be what the keys of several begin with.
SECTIONS: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(
    (resources.files(__package__) / "texts.yaml").read_text(encoding="utf-8")
)


def make_all(comparison: Comparison) -> list[Section]:
    """All sections that the runs have data for, with their chapters."""
    keys = [(chapter, key) for chapter, texts in SECTIONS.items() for key in texts]
    return [section for place in keys for section in _made(comparison, *place)]


def make(comparison: Comparison, key: str) -> Section | None:
    """The section of a key, such as "cost" or "attack-fgsm"; None if the runs have no data for it.

    Raises:
        KeyError: No section has such a key.
    """
    chapters = {name: chapter for chapter, texts in SECTIONS.items() for name in texts}
    of = key if key in chapters else key.partition("-")[0]
    return next((it for it in _made(comparison, chapters[of], of) if it.key == key), None)


def _made(comparison: Comparison, chapter: str, name: str) -> Iterator[Section]:
    """The sections of a maker that have content, with their keys, by which figures are saved."""
    text, function = SECTIONS[chapter][name], name.replace("-", "_")
    found = filter(callable, (vars(room).get(function) for room in _ROOMS))
    maker = cast(Maker, next(found))
    for body, words, own in maker(comparison):
        key, shown = own or name, body.body if isinstance(body, Folded) else body
        if isinstance(shown, Table) and not shown.rows:
            continue
        if isinstance(body, Figure):
            if not body.panels:
                continue
            body = replace(body, name=key)
        said = {
            word: value * text[word].format(**words) if isinstance(value, bool) else value
            for word, value in words.items()
        }
        title, caption = (text[part].format(**said) for part in ("title", "caption"))
        yield Section(title, caption, body, key, chapter)
