"""The words of docstrings, comments and pages: contorted phrases that were once rewritten everywhere stay away."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import memsched

ROOT = Path(memsched.__file__).parent
PAGES = ROOT.parent / "docs"

CONTORTED = (
    "had of",
    "is had at",
    "to be had",
    "who are told",
    "nobody is told",
    "told of solutions",
    "in the way that",
    "where it is at hand",
    "those at hand",
    "those that there are",
    "the two that there are",
    "the one that there is",
    "is let go",
    "it binds nobody",
    "whatever the machine",
    "whatever they say",
    "whatever may be said",
    "whoever gives",
    "whoever has",
    "whoever started",
    "is that and no more",
    "what dask says",
    "told even to",
    "is said even",
    "one that ended without a word",
    "are had",
    "comes behind",
    "costs a look",
    "gone through",
    "held against",
    "may be begun",
    "shall be",
    "what came of",
)


def _docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings, those of constants too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def _spoken(source: str) -> Iterator[str]:
    """Yield the docstrings, and the comments joined where they follow each other."""
    yield from _docstrings(source)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield "\n".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)


def contorted(text: str) -> list[str]:
    """Return the contorted phrases in ``text``, also where a line ends within one."""
    flat = " ".join(text.casefold().split())
    return [phrase for phrase in CONTORTED if re.search(rf"\b{re.escape(phrase)}\b", flat)]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docstrings_and_comments_are_plain(path: Path) -> None:
    assert [found for text in _spoken(path.read_text(encoding="utf-8")) for found in contorted(text)] == []


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docstrings_open_with_what_they_describe(path: Path) -> None:
    """A docstring that opens with "Of the time" leaves the reader to guess the noun: a share of it, or the most."""
    docstrings = _docstrings(path.read_text(encoding="utf-8"))
    assert [text for text in docstrings if text.startswith(("Of ", "As `"))] == []


@pytest.mark.parametrize(
    "path",
    [ROOT.parent / "README.md", *sorted(PAGES.rglob("*.md"))],
    ids=lambda path: path.relative_to(ROOT.parent).as_posix(),
)
def test_pages_are_plain(path: Path) -> None:
    assert contorted(path.read_text(encoding="utf-8")) == []


def test_phrases_are_found_across_lines() -> None:
    assert contorted("Return the plan\n    that whoever\n    gives.") == ["whoever gives"]
    assert contorted("had often") == []
