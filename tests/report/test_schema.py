"""The schemas say what the types say, and data that does not fit is told by where it is and why."""

from __future__ import annotations

import copy
import json
import random
from importlib import import_module
from typing import Any

import jsonschema
import msgspec
import pytest

from memsched.base.typed import UnfitError, converted, dotted
from memsched.report.reading import worded
from memsched.report.schema import SCHEMAS, json_schema
from memsched.report.values.optimize import OptimizeReport
from tests.failures import fails
from tests.report.plain import plain, report_with
from tests.report.test_build import a_graph
from tests.report.test_tiling import a_report, a_section

JUDGE = jsonschema.Draft202012Validator(json_schema("report"))
VALUES: list[Any] = [None, True, -1, 0, 3, 0.5, "", "text", [], [1], ["a"], {}, {"a": 1}, "optimal", [[0, 1]], [[0]]]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_and_strict(name: str) -> None:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False, part["title"]
        assert part["description"], part["title"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_part_of_a_schema_is_one_of_the_type(name: str) -> None:
    module, kind = SCHEMAS[name]
    fields = msgspec.structs.fields(getattr(import_module(module), kind))
    assert list(json_schema(name)["properties"]) == [field.encode_name for field in fields]


def test_fields_are_described_in_the_words_of_the_docstrings() -> None:
    parts = json_schema("report")["$defs"]
    assert parts["StepRow"]["properties"]["footprint_bytes"]["description"] == "live_bytes + workspace_bytes."
    assert "Attributes" not in json.dumps(parts)


def test_every_field_of_a_report_has_a_description() -> None:
    schema = json_schema("report")
    parts = {"report": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, field in part["properties"].items()
        if "description" not in field
    ]
    assert not bare


def test_a_name_that_is_none() -> None:
    with fails("no-such-schema", "'reprot'", "'report'?"):
        json_schema("reprot")


def reports() -> list[dict[str, Any]]:
    return [plain(report_with(*a_graph(), budget_bytes=5)), a_report(a_section())]


def spoil(rng: random.Random, value: Any) -> None:
    """Change one thing somewhere in ``value``."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = rng.choice(keys)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
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
def test_reading_agrees_with_the_schema(seed: int) -> None:
    rng = random.Random(seed)
    for report in reports():
        assert converted(report, OptimizeReport).command == report["command"]
        changed = copy.deepcopy(report)
        for _ in range(rng.randint(1, 2)):
            spoil(rng, changed)
        if JUDGE.is_valid(changed):
            converted(changed, OptimizeReport)
            continue
        with pytest.raises(UnfitError) as caught:
            converted(changed, OptimizeReport)
        text = worded(caught.value.fault)
        assert "\n" not in text
        assert len(text) < 200
        # It leads to something that is there.
        place: Any = changed
        for step in caught.value.fault.path:
            place = place[step]
        assert place == caught.value.fault.value


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("seed",), "x", ("type", "seed", "'x'")),
        (("seed",), True, ("type", "seed", "true")),
        (("seed",), 1.5, ("type", "seed", "1.5")),
        (("seed",), -1, ("bounds", "seed", "-1")),
        (("seconds",), -0.5, ("bounds", "seconds", "-0.5")),
        (("written", "steps", 2, "op"), None, ("type", "written.steps[2].op", "null")),
        (("written", "steps", 2, "origin"), 3, ("type", "written.steps[2].origin", "3", "null")),
        (("written", "steps", 2, "region"), [[1]], ("length", "written.steps[2].region[0]", "1")),
        (("written", "steps", 2, "region"), [[1, -1]], ("bounds", "written.steps[2].region[0][1]", "-1")),
        (("written", "operators", "b`.[x]"), 0, ("bounds", "written.operators.b`.[x]", "0")),
        (("budget",), [], ("type", "budget", "list", "null")),
        (("command",), "fly", ("choice", "command", "'fly'", "optimize", "analyze")),
        (("model", "sha256"), "zz", ("form", "model.sha256", "'zz'")),
        (("schema_version",), 1, ("choice", "schema_version", "1", "2")),
        (("proof", "status"), "\ud800", ("choice", "proof.status", "'?'", "optimal", "feasible")),
        (("model", "sha256"), "\udfff", ("form", "model.sha256", "'\\udfff'")),
        (("model", "\ud800"), 1, ("unknown", "'model.?'")),
        (("sections", "pools"), {}, ("missing", "sections.pools", "'weighted_traffic'")),
        (("model", "a ` - at `$.b`"), 1, ("unknown", "'model.a ` - at `$.b`'")),
        (("x` - at `$.nowhere",), 1, ("unknown", "'x` - at `$.nowhere'")),
        (("more\n" * 40,), 1, ("unknown", "more")),
    ],
)
def test_it_says_where_and_why(path: tuple[Any, ...], value: Any, told: tuple[str, ...]) -> None:
    report = reports()[0]
    inner: Any = report
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(UnfitError) as caught:
        converted(report, OptimizeReport)
    found = worded(caught.value.fault)
    reason, *about = told
    assert caught.value.fault.reason == reason
    assert [one for one in about if one not in found] == []
    assert "\n" not in found
    assert len(found) < 200


def test_a_path_as_people_write_it() -> None:
    assert dotted(("written", "steps", 2, "region", 0, 1)) == "written.steps[2].region[0][1]"
    assert dotted(()) == ""
