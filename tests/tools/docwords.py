"""Count the words of README.md and docs/, but for generated tables: `python -m tests.tools.docwords`.

A word is what blanks separate, as "wc -w" has it. Everything counts: prose, code, what commands print, links, tables
that somebody wrote. Left out are tables that a program makes: on the pages of docs/benchmarks, which copy what
`python -m scripts.bench` and the tools of tests/tools print, and on docs/operators.md and docs/truth.md, which tools
write; the words around these count. Of README.md every word counts, its tables included.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["MOST_IN_DOCS", "MOST_IN_README", "ROOT", "pages", "words_of"]

ROOT = Path(__file__).parents[2]

MOST_IN_README = 900
MOST_IN_DOCS = 14_000

_GENERATED = ("docs/benchmarks/", "docs/operators.md", "docs/truth.md")
"""Pages whose tables a program makes; a name that ends with "/" is a folder."""


def pages() -> list[str]:
    """Return the pages of docs/, from the repository's root."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def words_of(page: str, text: str) -> int:
    """Return how many words of a page's ``text`` count."""
    generated = page.startswith(_GENERATED)
    return sum(len(line.split()) for line in text.splitlines() if not (generated and line.startswith("|")))


def main() -> None:
    """Print the words of each page, the most first, and what they come to."""
    counts = {page: words_of(page, (ROOT / page).read_text(encoding="utf-8")) for page in ("README.md", *pages())}
    for page in sorted(counts, key=lambda page: -counts[page]):
        print(f"{counts[page]:7,}  {page}")
    print(f"{sum(counts.values()) - counts['README.md']:7,}  docs/, fewer than {MOST_IN_DOCS:,}")
    print(f"{counts['README.md']:7,}  README.md, fewer than {MOST_IN_README:,}")


if __name__ == "__main__":
    main()
