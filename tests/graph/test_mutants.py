"""Mutation testing reaches every module of `graph/` and `check/`, and makes the changes that it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tools.mutants import MODULES, Result, mutants_of

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
def f(x: int = 0) -> int:
    for one in range(x):
        if one <= 3 and not x:
            continue
    return max(x, 7) if x == 2 else -x
"""
CHANGES = [
    (2, "0 -> 1"),
    (4, "if one <= 3 and (not x): continue -> if False: continue"),
    (4, "one <= 3 and (not x) -> one <= 3 or not x"),
    (4, "one <= 3 -> one < 3"),
    (4, "one <= 3 -> one > 3"),
    (4, "3 -> 4"),
    (4, "not x -> x"),
    (5, "continue -> break"),
    (6, "max(x, 7) if x == 2 else -x -> max(x, 7) if not x == 2 else -x"),
    (6, "max(x, 7) -> min(x, 7)"),
    (6, "7 -> 8"),
    (6, "x == 2 -> x != 2"),
    (6, "2 -> 3"),
]


def test_every_small_change_is_made_once() -> None:
    found = list(mutants_of(SOURCE))
    assert [(mutant.line, mutant.change) for mutant in found] == CHANGES
    texts = {mutant.source for mutant in found}
    assert len(texts) == len(CHANGES)
    assert ast.unparse(ast.parse(SOURCE)) not in texts


def test_messages_annotations_and_imports_stay() -> None:
    typing = "import a\nif TYPE_CHECKING:\n    import b\n\n"
    source = typing + "@a.b(1)\ndef f(x: a[1]) -> a[2]:\n    if x > 0:\n        raise ValueError(x + 1)\n"
    assert [mutant.change for mutant in mutants_of(source)] == [
        "if x > 0: raise ValueError(x + 1) -> if False: raise ValueError(x + 1)",
        "x > 0 -> x >= 0",
        "x > 0 -> x <= 0",
        "0 -> 1",
    ]


def test_a_mutant_is_known_again_where_its_line_has_moved() -> None:
    before = [mutant.told() for mutant in mutants_of(SOURCE)]
    after = list(mutants_of("\n\n" + SOURCE))
    assert [mutant.is_told(told) for mutant, told in zip(after, before, strict=True)] == [True] * len(CHANGES)
    assert not any(mutant.is_told(before[0]) for mutant in after[1:])


def test_a_table_counts_what_no_test_noticed() -> None:
    mutants = tuple(mutants_of(SOURCE))
    assert Result(13, 2, mutants[:1], 4.4).row("f") == "| f | 13 | 12 | 92.3 % | 2 | 4 |"
    assert Result(0, 0, (), 0.0).percent == 100.0


def test_no_module_is_left_out() -> None:
    modules = {
        f"{room}/{path.stem}": path for room in ("graph", "check") for path in (ROOT / "memsched" / room).glob("*.py")
    }
    changeable = {name for name, path in modules.items() if any(mutants_of(path.read_text(encoding="utf-8")))}
    assert not changeable - set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_tests_of_a_module_exist(name: str) -> None:
    assert MODULES[name]
    for test in MODULES[name]:
        assert (ROOT / test).is_file()
