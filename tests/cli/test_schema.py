"""``memsched schema``: the form of each file, and what is said of a name that is none."""

from __future__ import annotations

import json

import pytest

from memsched.report.schema import SCHEMAS, json_schema
from tests.cli.conftest import Run


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema(run: Run, name: str) -> None:
    done = run("schema", name)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == json_schema(name)


def test_the_list(run: Run) -> None:
    listed = run("schema").out.splitlines()
    assert [line.split()[0] for line in listed] == list(SCHEMAS)
    assert all(line.endswith(".") for line in listed)


def test_a_name_that_is_none(run: Run) -> None:
    done = run("schema", "reprot")
    assert done.code == 2
    assert done.out == ""
    names = ", ".join(SCHEMAS)
    done.failed("no-such-schema", "'reprot'", "'report'?", names)
