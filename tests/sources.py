"""The package's own modules as text and as trees, each read once: rules about all of them are one test each."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import memsched

__all__ = ["MODULES", "PACKAGE", "name_of", "text_of", "tree_of"]

PACKAGE = Path(memsched.__file__).parent
MODULES = tuple(sorted(PACKAGE.rglob("*.py")))


def name_of(path: Path) -> str:
    """Return a module's path below memsched without the suffix: "graph/liveness", or "graph" for a package itself."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__")


@cache
def text_of(path: Path) -> str:
    """Return the text of a module."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module.

    All trees are kept, a million nodes, through which no collection of garbage is to go again and again.
    """
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        gc.freeze()
        gc.enable()
