"""Which rewrites take which operators: docs/operators.md, and the operators that one table alone used to cover."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import pytest

from memsched.ops.table import OPERATORS
from tests.tools import operators
from tests.tools.operators import PAGE, REWRITES, YES

EVERYWHERE = (
    "ArgMax",
    "ArgMin",
    "Celu",
    "ConvInteger",
    "DequantizeLinear",
    "InstanceNormalization",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
)
"""Operators that were known at fixed lengths alone."""


@cache
def table() -> Mapping[str, Mapping[str, str]]:
    return operators.table()


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == operators.page(table()), "python -m tests.tools.operators --write"


def test_each_rewrite_takes_an_operator_or_says_why_not() -> None:
    """With `pytest -s`, print what each refuses."""
    assert set(table()) == set(OPERATORS)
    for rewrite in REWRITES:
        refused = defaultdict(list)
        for kind, found in table().items():
            if found and found[rewrite] != YES:
                refused[found[rewrite]].append(kind)
        assert all(refused)
        sys.stdout.write(f"\n{rewrite}\n")
        for reason, kinds in sorted(refused.items()):
            sys.stdout.write(f"  {reason}: {', '.join(kinds)}\n")


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_what_one_table_knew_works_everywhere(kind: str) -> None:
    refused = {rewrite: reason for rewrite, reason in table()[kind].items() if reason != YES}
    assert refused.keys() <= {"algebra", "C"}
