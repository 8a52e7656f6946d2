"""The package's own check of a schema says what the library of development says."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import jsonschema
import pytest

from memsched.report.build import build_report, dump_report, load_schema
from memsched.report.schema_check import first_violation
from tests.report.test_build import a_graph, facts_of
from tests.report.test_tiling import a_report, a_section

SCHEMA = load_schema()
JUDGE = jsonschema.Draft202012Validator(SCHEMA)
VALUES: list[Any] = [None, True, -1, 0, 3, 0.5, "", "text", [], [1], ["a"], {}, {"a": 1}, "optimal", [[0, 1]], [[0]]]


def reports() -> list[dict[str, Any]]:
    plain = build_report(facts_of(*a_graph(), budget_bytes=5))
    return [json.loads(dump_report(report)) for report in (plain, a_report(a_section()))]


def spoil(rng: random.Random, value: Any) -> None:
    """Change one thing somewhere in ``value``."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = rng.choice(keys)
        inner = value[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.8:
            value = inner
            continue
        change = rng.randrange(4)
        if change == 0:
            del value[key]
        elif change == 1 and isinstance(value, dict):
            value["surprise"] = 1
        else:
            value[key] = rng.choice(VALUES)
        return


@pytest.mark.parametrize("seed", range(150))
def test_it_agrees_with_the_library(seed: int) -> None:
    rng = random.Random(seed)
    for report in reports():
        assert first_violation(report, SCHEMA) is None
        changed = copy.deepcopy(report)
        for _ in range(rng.randint(1, 2)):
            spoil(rng, changed)
        assert (first_violation(changed, SCHEMA) is None) == JUDGE.is_valid(changed)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("seed",), "x", "seed is 'x', not a whole number"),
        (("seed",), True, "seed is true, not a whole number"),
        (("seed",), -1, "seed is -1, less than 0"),
        (("steps", 2, "op"), None, "steps[2].op is null, not a text"),
        (("steps", 2, "region"), [[1]], "steps[2].region[0] has 1 entries"),
        (("command",), "fly", "command is 'fly', not one of optimize, analyze"),
        (("model", "sha256"), "zz", "model.sha256 is 'zz', which is not of its form"),
        (("schema_version",), 2, "schema_version is 2, not 1"),
        (("pools",), {}, "pools has no 'weighted_traffic'"),
        (("more\n" * 40,), 1, "is nothing that this version knows"),
    ],
)
def test_it_says_where_and_why(path: tuple[Any, ...], value: Any, message: str) -> None:
    report = reports()[0]
    inner: Any = report
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    found = first_violation(report, SCHEMA)
    assert found is not None
    assert message in found
    assert "\n" not in found
    assert len(found) < 200
