"""Sizes as people write them, and back."""

from __future__ import annotations

import pytest

from memsched.base.units import format_size, parse_size
from tests.failures import fails


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("64", 64),
        ("64B", 64),
        ("64k", 65536),
        ("64KB", 65536),
        ("64KiB", 65536),
        (" 1.5 MiB ", 1572864),
        ("2m", 2 << 20),
        ("3G", 3 << 30),
        ("1T", 1 << 40),
        ("0.5K", 512),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


NO_SIZES = ["", "K", "-1", "1 2", "1.5.2M", "1e3", "64KX", "MB", "\u0661", "64 K B", "inf", "nan"]


@pytest.mark.parametrize("text", NO_SIZES)
def test_what_is_no_size_is_rejected(text: str) -> None:
    with fails("bad-size", f"'{text}'", "256KB") as caught:
        parse_size(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (10239, "10,239 B"),
        (10240, "10.0 KB"),
        (262144, "256.0 KB"),
        (10 << 20, "10.0 MB"),
        (10 << 30, "10.0 GB"),
        (-5, "-5 B"),
        (-20480, "-20.0 KB"),
    ],
)
def test_sizes_are_written(size: int, text: str) -> None:
    assert format_size(size) == text
