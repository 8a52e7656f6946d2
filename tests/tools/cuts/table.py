"""The table as text: one text per operator, role and verdict, with the element types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from memsched.ops.cuts import LONG, VERDICTS, Cuts, table
from memsched.targets.text import parse_toml
from tests.tools.cuts.models import Runtime

__all__ = ["RUNTIMES", "merged", "read", "spread", "text_of"]

RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "litert", "tflm")
_HEAD = "# Made by `make cuts`, which compares operators whole and in pieces; see memsched/ops/cuts.py.\n"


def read(path: Path) -> dict[str, Cuts]:
    """Return the table per runtime; empty where there is none yet."""
    stated = parse_toml(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {runtime: table(stated.get(runtime, {})) for runtime in RUNTIMES}


def merged(known: Cuts, found: Cuts) -> Cuts:
    """Return a table in which what was seen now of an operator stands in place of what was known of it."""
    again = {kind for kind, _, _ in found}
    return {**{key: value for key, value in known.items() if key[0] not in again}, **found}


def spread(found: Cuts) -> Cuts:
    """Return what was seen with "differs" at sums of any length where it was seen at some.

    How many terms an element has decides how floats are rounded; a lost NaN, or an integer that is off, it takes luck
    to see.
    """
    differing = {
        (kind, word.removesuffix(LONG), dtype) for (kind, word, dtype), seen in found.items() if seen == "differs"
    }
    return {
        key: "differs" if (key[0], key[1].removesuffix(LONG), key[2]) in differing else seen
        for key, seen in found.items()
    }


def text_of(tables: Mapping[str, Cuts]) -> str:
    """Return the file."""
    parts = [_HEAD]
    for runtime in RUNTIMES:
        parts.append(f"\n[{runtime}]\n")
        lines: dict[str, dict[tuple[str, int], list[str]]] = defaultdict(lambda: defaultdict(list))
        for (kind, word, dtype), seen in tables[runtime].items():
            lines[kind][word, VERDICTS.index(seen)].append(dtype)
        for kind, found in sorted(lines.items()):
            shown = [
                f'"{word} {VERDICTS[seen]} {" ".join(sorted(types))}"' for (word, seen), types in sorted(found.items())
            ]
            name = f'"{kind}"' if "." in kind else kind
            whole = f"{name} = [{', '.join(shown)}]\n"
            parts.append(
                whole if len(whole) <= 121 else f"{name} = [\n" + "".join(f"    {one},\n" for one in shown) + "]\n"
            )
    return "".join(parts)
