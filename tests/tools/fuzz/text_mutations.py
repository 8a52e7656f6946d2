"""Changes to valid text files: buffer tables, targets, clusters and reports."""

from __future__ import annotations

import random

__all__ = ["mutated"]

_TOKENS = (
    b"-1", b"0", b"1", b"1e999", b"nan", b"inf", b"9" * 40, b"0x10", b"1_000", b"true", b"null", b'"', b"'", b"[", b"]",
    b"{", b"}", b"=", b",", b"\n", b"\r", b"\x00", b"\xff", b"\xef\xbb\xbf", b"a" * 300, b"[" * 300, b"<script>",
    b"size", b"lower", b"upper", b"id", b"gaps", b"1-2@3:4", b"5-1", b"64MB", b"1e3", b"\t", b" ", b"#",
    b"[[in_place]]",
)  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with a few tokens, lines or bytes changed."""
    for _ in range(rng.choice((1, 1, 2, 4, 10))):
        data = _once(data, rng)
    return data


def _once(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(7)
    place = rng.randrange(len(data) + 1)
    if kind == 0:
        return data[:place] + rng.choice(_TOKENS) + data[place:]
    if kind == 1:
        return data[:place] + rng.choice(_TOKENS) + data[place + rng.randrange(1, 8) :]
    if kind == 2:
        return data[:place]
    lines = data.split(b"\n")
    line = rng.randrange(len(lines))
    if kind == 3:
        del lines[line]
    elif kind == 4:
        lines.insert(rng.randrange(len(lines) + 1), lines[line])
    elif kind == 5:
        cells = lines[line].split(b",")
        cells[rng.randrange(len(cells))] = rng.choice(_TOKENS)
        lines[line] = b",".join(cells)
    else:
        words = lines[line].split(b"=")
        words[-1] = b" " + rng.choice(_TOKENS)
        lines[line] = b"=".join(words)
    return b"\n".join(lines)
