"""The one definition of what an op does beyond computing its outputs."""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import memsched
from memsched.graph.effects import PURE, UNKNOWN, Effects, joined, spread
from memsched.ops import onnx, tflite

ROOT = Path(memsched.__file__).parent
ALL = [Effects(*bits) for bits in itertools.product((False, True), repeat=5)]

RANDOM = {*onnx.SEEDS, *tflite.SEEDED, "STABLEHLO_RNG_BIT_GENERATOR"} - {"Dropout"}
STATE = {*tflite.READERS, *tflite.WRITERS, *tflite.HANDLES, "CALL_ONCE"}
OF_MEMORY = {
    *("formats/tflite/options", "runtimes/tflm/persistent", "runtimes/tflm/plan", "runtimes/tflm/plan_replay"),
    "runtimes/tflm/resource_variables",
}
"""Modules that say which options such an operator has, and what its kernel keeps."""


def strings(path: Path) -> Iterator[str]:
    """Yield the string constants of a module, and the words of those that hold several."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_other_module_knows_which_operators_draw_or_have_a_state() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT).with_suffix(""))
        if not name.startswith("ops/"):
            known = set(strings(path))
            assert not known & RANDOM, f"{name} has a list of its own: {known & RANDOM}"
            assert name in OF_MEMORY or not known & STATE, f"{name} has a list of its own: {known & STATE}"


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_every_operator_that_draws_is_executed_once(kind: str) -> None:
    effects = onnx.by_type(kind) | tflite.by_type(kind)
    assert effects.random
    assert effects.once
    assert not effects.repeatable(custom=True)


@pytest.mark.parametrize("kind", ["READ_VARIABLE", "ASSIGN_VARIABLE", "VAR_HANDLE", "HASHTABLE_FIND", "CALL_ONCE"])
def test_every_operator_with_a_state_is_executed_once(kind: str) -> None:
    assert tflite.by_type(kind).stateful
    assert not tflite.by_type(kind).repeatable(custom=True)


@pytest.mark.parametrize("kind", ["Conv", "com.microsoft.Gelu", "ai.onnx.ml.Scaler", "Dropout", "If"])
def test_most_operators_are_pure(kind: str) -> None:
    assert onnx.by_type(kind) == PURE
    assert tflite.by_type("CONV_2D") == tflite.by_type("HASHTABLE_LOOKUP") == PURE


@pytest.mark.parametrize("kind", ["my.domain.Op", "com.microsoft.EPContext"])
def test_an_unknown_operator_is_repeated_only_if_the_user_vouches_for_it(kind: str) -> None:
    for effects in (onnx.by_type(kind), tflite.by_type("CUSTOM:mine"), tflite.by_type("BUILTIN_999")):
        assert effects == UNKNOWN
        assert not effects.pure
        assert effects.repeatable(custom=True)
        assert not effects.repeatable()


def test_effects_join_as_sets_do() -> None:
    for one, two in itertools.product(ALL, repeat=2):
        both = one | two
        assert both == two | one
        assert both | one == both
        assert both.pure == (one.pure and two.pure)
        assert both.once == (one.once or two.once)
        assert both.repeatable() == (one.repeatable() and two.repeatable())
    assert joined(ALL) == Effects(*[True] * 5)
    assert joined(()) == PURE


def test_what_may_be_repeated_has_no_words() -> None:
    for one in ALL:
        assert one.pure == (not one.words())
        assert not one.once or not one.repeatable(custom=True)


def test_effects_spread_to_every_caller_of_a_caller() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        count = rng.randint(1, 7)
        own = [rng.choice([PURE, PURE, rng.choice(ALL)]) for _ in range(count)]
        calls = {one: {rng.randrange(count) for _ in range(rng.randint(0, 2))} for one in range(count)}
        reached = [{one} for one in range(count)]
        for _ in range(count):
            for one in range(count):
                reached[one] |= {far for near in calls[one] for far in reached[near]}
        assert spread(own, calls) == [joined(own[far] for far in reached[one]) for one in range(count)]
