"""All commands of pages that hold slow ones, from top to bottom: `make test-docs`, a quarter of an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import SLOW, TIMED, follow


@pytest.mark.parametrize("page", sorted({page for page, _ in (*SLOW, *TIMED)}))
def test_a_page_with_slow_commands_is_what_happens(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path, {"run", "slow", "timed"})
