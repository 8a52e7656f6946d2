"""The exit codes that the command line promises."""

from __future__ import annotations

import ast
import pickle
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsched.base import errors

EXIT_CODES = {
    "BudgetError": 3,
    "GraphError": 1,
    "InternalError": 1,
    "MemschedError": 1,
    "ModelError": 1,
    "OutputError": 1,
    "ReportError": 1,
    "RuntimeUnavailableError": 1,
    "TargetError": 1,
    "UnknownShapeError": 1,
    "UsageError": 2,
    "VerificationError": 1,
}


def test_every_error_is_listed() -> None:
    assert set(errors.__all__) == set(EXIT_CODES)


@pytest.mark.parametrize("name", sorted(EXIT_CODES))
def test_exit_codes(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.MemschedError)
    assert kind("x").exit_code == EXIT_CODES[name]


def test_an_error_has_parts_that_make_its_line() -> None:
    error = errors.ModelError("it is too short", code="cut-off", location="net.onnx", action="copy it again")
    assert (error.code, error.problem, error.location, error.action) == (
        *("cut-off", "it is too short", "net.onnx", "copy it again"),
    )
    assert str(error) == "net.onnx: it is too short; copy it again"
    assert errors.ModelError("it is too short").code == errors.ModelError.code != errors.MemschedError.code


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError("no number", code="not-a-number", location="--dim", action="give one"),
        errors.UnknownShapeError("'x' has no rank", ("--shape", "x=1")),
    ],
)
def test_parts_survive_a_process_and_a_further_location(error: errors.MemschedError) -> None:
    def parts(one: errors.MemschedError) -> tuple[object, ...]:
        return type(one), one.code, one.problem, one.action, getattr(one, "options", None)

    sent = pickle.loads(pickle.dumps(error))  # noqa: S301
    moved = error.at("net.onnx")
    assert parts(sent) == parts(error) == parts(moved)
    assert str(sent) == str(error)
    assert str(moved) == f"net.onnx: {error}"


def codes_of(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the codes that are written down in a module, each with the class of errors that has it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code":
                    yield ast.literal_eval(line.value), node.name
        elif isinstance(node, ast.Call):
            given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            for one in given:
                for text in ast.walk(one):
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        yield text.value, ast.unparse(node.func)


def test_a_code_is_of_one_class() -> None:
    kinds = defaultdict(set)
    for path in Path(errors.__file__).parent.parent.rglob("*.py"):
        for code, kind in codes_of(ast.parse(path.read_text())):
            kinds[code].add(kind)
    assert len(kinds) > 300
    assert {code: found for code, found in kinds.items() if len(found) > 1} == {}


def test_a_code_of_two_classes_is_found() -> None:
    lines = 'class AError(Exception):\n    code = "a"\n', 'raise BError("", code="a" if x else "b")'
    assert [set(codes_of(ast.parse(one))) for one in lines] == [{("a", "AError")}, {("a", "BError"), ("b", "BError")}]
