"""README.md can be read aloud in a minute, and the documentation stays short."""

from __future__ import annotations

from tests.tools.docwords import MOST_IN_DOCS, MOST_IN_README, ROOT, pages, words_of

TABLE = "Some words.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_the_readme_takes_a_minute() -> None:
    assert words_of("README.md", (ROOT / "README.md").read_text(encoding="utf-8")) < MOST_IN_README == 900


def test_the_documentation_is_short() -> None:
    counts = {page: words_of(page, (ROOT / page).read_text(encoding="utf-8")) for page in pages()}
    assert len(counts) > 20
    assert sum(counts.values()) < MOST_IN_DOCS == 14_000, counts


def test_generated_tables_alone_are_left_out() -> None:
    for page in ("docs/benchmarks/order.md", "docs/operators.md", "docs/truth.md"):
        assert words_of(page, TABLE) == 2
    assert words_of("docs/targets.md", TABLE) == words_of("README.md", TABLE) == len(TABLE.split())
    assert words_of("docs/targets.md", "```console\n$ memsched\nprinted\n```\n") == 5
