"""Damage to files: what disks, transfers, editors and evil minds do to them."""

import random
import re
from collections.abc import Callable
from typing import Literal

_NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, -1)
_TEXTS = (b"0", b"-1", b"1e999", b"999999999999", b"4294967296", b"nan", b"[[[[[[[[", b"null")
_EDGE = 256  # bytes at both ends, where most formats say how long things are


def mutate(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Damages a file one to three times; parts of another of its kind may get into it."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if draw.random() < 0.05:  # the beginning of one file and the end of another
            place = _place(data, draw)
            data = data[:place] + other[place:]
        else:
            data = draw.choice(_MUTATIONS)(data, draw)
    return data


def _place(data: bytes, draw: random.Random) -> int:
    """A place in a file, often near one of its ends."""
    if len(data) > 2 * _EDGE and draw.random() < 0.5:
        return draw.choice((0, len(data) - _EDGE)) + draw.randrange(_EDGE)
    return draw.randrange(len(data) + 1)


def _chunk(data: bytes, draw: random.Random) -> tuple[int, int]:
    start = _place(data, draw)
    return start, min(len(data), start + draw.choice((1, 2, 4, 8, 16, 64, 256, 1024)))


def _flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if changed:
            changed[_place(data, draw) % len(changed)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _set(data: bytes, draw: random.Random) -> bytes:
    place = _place(data, draw)
    return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]


def _truncate_at_line(data: bytes, draw: random.Random) -> bytes:
    ends = [found.end() for found in re.finditer(b"\n", data)]
    return data[: draw.choice(ends) if ends else _place(data, draw)]


def _insert(data: bytes, draw: random.Random) -> bytes:
    place = _place(data, draw)
    return data[:place] + draw.randbytes(draw.choice((1, 2, 8, 64, 1000))) + data[place:]


def _delete(data: bytes, draw: random.Random, instead: bytes = b"") -> bytes:
    start, end = _chunk(data, draw)
    return data[:start] + instead * (end - start) + data[end:]


def _duplicate(data: bytes, draw: random.Random) -> bytes:
    start, end = _chunk(data, draw)
    place = _place(data, draw)
    return data[:place] + data[start:end] + data[place:]


def _swap(data: bytes, draw: random.Random) -> bytes:
    (a, b), (c, d) = sorted((_chunk(data, draw), _chunk(data, draw)))
    b = min(b, c)
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _move_line(data: bytes, draw: random.Random) -> bytes:
    """Two lines in each other's place, or one of them in none."""
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return _swap(data, draw)
    a, b = draw.sample(range(len(lines)), 2)
    lines[a], lines[b] = lines[b], draw.choice((lines[a], b""))
    return b"".join(lines)


def _number(data: bytes, draw: random.Random) -> bytes:
    """Another binary number where one may be."""
    size = draw.choice((1, 2, 4, 8))
    order: Literal["little", "big"] = draw.choice(("little", "big"))
    number = (draw.choice(_NUMBERS) + draw.choice((0, 0, 1, -1))) % (1 << (8 * size))
    place = _place(data, draw)
    return data[:place] + number.to_bytes(size, order) + data[place + size :]


def _written_number(data: bytes, draw: random.Random) -> bytes:
    """Another number in place of one that is written in digits."""
    found = list(re.finditer(rb"\d+(\.\d+)?", data[: 1 << 16]))
    if not found:
        return _number(data, draw)
    start, end = draw.choice(found).span()
    digits = bytes(draw.choice(b"0123456789") for _ in range(end - start))
    return data[:start] + draw.choice((digits, *_TEXTS)) + data[end:]


_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_flip, _flip, _flip, _set, _truncate_at_line, _insert, _delete, _duplicate, _swap),
    *(_move_line, _move_line, _number, _number, _written_number),
    lambda data, draw: _delete(data, draw, b"\0"),
    lambda data, draw: data[: _place(data, draw)],
    lambda data, draw: b"",
)
