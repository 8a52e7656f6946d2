"""The words of docstrings, comments and pages: contorted phrases that were once rewritten everywhere stay away."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.sources import MODULES, PACKAGE, name_of, text_of, tree_of

ROOT = PACKAGE.parent

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


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings, those of constants too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def _comments(source: str) -> str:
    """Return the comments, joined where they follow each other."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)


def contorted(text: str) -> list[str]:
    """Return the contorted phrases in ``text``, also where a line ends within one."""
    flat = " ".join(text.casefold().split())
    return [phrase for phrase in CONTORTED if re.search(rf"\b{re.escape(phrase)}\b", flat)]


@pytest.mark.quick
def test_docstrings_and_comments_are_plain() -> None:
    spoken = {name_of(path): [*_docstrings(tree_of(path)), _comments(text_of(path))] for path in MODULES}
    assert [(name, found) for name, texts in spoken.items() for text in texts for found in contorted(text)] == []


def test_docstrings_open_with_what_they_describe() -> None:
    """A docstring that opens with "Of the time" leaves the reader to guess the noun: a share of it, or the most."""
    docstrings = [(name_of(path), text) for path in MODULES for text in _docstrings(tree_of(path))]
    assert [one for one in docstrings if one[1].startswith(("Of ", "As `"))] == []


def test_pages_are_plain() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert [(page.name, found) for page in pages for found in contorted(page.read_text(encoding="utf-8"))] == []


def test_phrases_are_found_across_lines() -> None:
    assert contorted("Return the plan\n    that whoever\n    gives.") == ["whoever gives"]
    assert contorted("had often") == []
