"""The house's floors (docs/architecture.md): who may import whom, how long a module may be, what is loaded when."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from memsched.formats.module import FormatName
from memsched.runtimes.values import RunnerName
from memsched.targets.model import DefaultOrder, Kernels, Planner, Runtime
from tests.sources import MODULES, name_of, text_of, tree_of

LONGEST_MODULE = 500

FLOORS = {
    "base": 0,
    "core": 1,
    "graph": 1,
    "search": 2,
    "targets": 2,
    "ops": 3,
    "check": 4,
    "lowering": 4,
    "solve": 4,
    "solve/fusion": 4,
    "solve/schedule": 5,
    "solve/allocate": 5,
    "solve/joint": 6,
    "rewrites": 6,
    "codegen/onchip": 6,
    "codegen/streaming": 6,
    "formats": 7,
    "runtimes": 8,
    "codegen": 8,
    "plan": 9,
    "report": 10,
    "commands": 11,
    "features": 12,
    "cli": 13,
    "integrations": 13,
    "__main__": 14,
    "onnxruntime": 13,
    "__init__": 14,
}

ROOMS = {
    "formats/onnx": {"formats/tflite"},
    "formats/tflite": {"formats/onnx"},
    "runtimes/onnxruntime": {"runtimes/litert", "runtimes/tflm", "runtimes/devices", "formats/tflite"},
    "runtimes/litert": {"runtimes/onnxruntime", "runtimes/tflm", "runtimes/devices", "formats/onnx"},
    "runtimes/tflm": {"runtimes/onnxruntime", "runtimes/devices", "formats/onnx"},
    "features/decoder": {"features/distribute", "features/doctor", "features/pipeline", "features/relay"},
    "features/distribute": {"features/decoder", "features/doctor", "features/pipeline", "features/relay"},
    "features/doctor": {"features/decoder", "features/distribute", "features/pipeline", "features/relay"},
    "features/pipeline": {"features/decoder", "features/distribute", "features/doctor", "features/relay"},
    "features/relay": {"features/decoder", "features/distribute", "features/doctor", "features/pipeline"},
    "rewrites/algebra": {"rewrites/recompute", "rewrites/tile"},
    "rewrites/recompute": {"rewrites/algebra", "rewrites/tile"},
    "rewrites/tile": {"rewrites/algebra", "rewrites/recompute"},
    "solve/schedule": {"solve/allocate"},
    "solve/allocate": {"solve/schedule"},
    "check": {"graph/liveness", "graph/contraction"},
    "search": {"graph"},
}
"""What a folder may not know beside the floors above: its neighbours, and what checkers would share with solvers."""

HEAVY = {
    "ai_edge_litert",
    "bokeh",
    "click",
    "distributed",
    "flatbuffers",
    "jinja2",
    "networkx",
    "numpy",
    "onnx",
    "onnxruntime",
    "ortools",
    "pymoo",
    "rich",
    "sympy",
    "tflite",
}
USED_BY_EVERY_COMMAND = {"click"}
"""What the command line itself is made of."""


KNOWN = {name_of(path) for path in MODULES}


@cache
def imported_by(path: Path) -> tuple[str, ...]:
    """Return the modules of memsched that a module imports anywhere, functions and type checking included."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which floor is meant"
            found = [[*(node.module or "").split("."), alias.name] for alias in node.names]
        else:
            continue
        for parts in found:
            if parts[0] == "memsched" and parts[1:] not in ([], ["__version__"]):
                below = "/".join(parts[1:])
                yield below if below in KNOWN else below.rpartition("/")[0] or below


def package_of(name: str) -> str:
    """Return the package of `FLOORS` that a module is in, the innermost one."""
    return max((one for one in FLOORS if f"{name}/".startswith(f"{one}/")), key=len, default="")


def test_there_are_modules_to_check() -> None:
    assert {package_of(name) for name in KNOWN if name != "."} == set(FLOORS)


def _may_import(name: str, other: str) -> bool:
    package, below = package_of(name), package_of(other)
    return package == below or FLOORS[below] < FLOORS[package]


@pytest.mark.quick
def test_modules_import_only_from_floors_below() -> None:
    imports = [(name_of(path), other) for path in MODULES for other in imported_by(path)]
    assert [one for one in imports if not _may_import(*one)] == []


def test_packages_leave_the_numbers_of_floors_to_the_table() -> None:
    """Each says what it holds; where it stands `FLOORS` and docs/architecture.md say, once."""
    said = {name_of(path): ast.get_docstring(tree_of(path)) for path in MODULES if path.name == "__init__.py"}
    assert {name for name, text in said.items() if not text or re.search(r"[Ff]loor \d", text)} == set()


def test_rooms_do_not_know_their_neighbours() -> None:
    imports = [(name_of(path), other) for path in MODULES for other in imported_by(path)]
    assert [
        (name, other)
        for name, other in imports
        for room, neighbours in ROOMS.items()
        if name.startswith(f"{room}/") and any(other == one or other.startswith(f"{one}/") for one in neighbours)
    ] == []


def test_no_module_imports_itself_through_others() -> None:
    waiting = {name_of(path): {one for one in imported_by(path) if one in KNOWN} for path in MODULES}
    while leaves := {name for name, others in waiting.items() if not others & waiting.keys() - {name}}:
        for name in leaves:
            del waiting[name]
    assert not waiting, f"in a circle, or above one: {sorted(waiting)}"


RUNTIMES_AND_FORMATS = ("formats/onnx", "formats/tflite", "runtimes/onnxruntime", "runtimes/litert", "runtimes/tflm")
"""Folders that nobody outside imports from: others ask `formats/known` and `runtimes/known`, through a protocol."""

OPENS = {
    "runtimes/onnxruntime": "formats/onnx",
    "runtimes/litert": "formats/tflite",
    "runtimes/tflm": "formats/tflite",
}
"""The format whose files a runtime loads: it reads them as the format does."""

REGISTRIES = {"formats/known", "runtimes/known"}
"""The two modules that list formats and runtimes; they name them, and compare with none."""


def room_of(name: str) -> str | None:
    """Return the folder of a runtime or a format that a module is in."""
    return next((room for room in RUNTIMES_AND_FORMATS if name == room or name.startswith(f"{room}/")), None)


def test_nobody_outside_its_folder_imports_a_runtime_or_a_format() -> None:
    """Only the registries do, and a runtime that opens the files of a format."""
    found: dict[str, list[str]] = {}
    for path in MODULES:
        name = name_of(path)
        for other in imported_by(path):
            room = room_of(other)
            if room not in {None, room_of(name), OPENS.get(room_of(name) or "")} and name not in REGISTRIES:
                found.setdefault(name, []).append(other)
    assert found == {}


NAMED = {
    *(name for kind in (FormatName, RunnerName, Runtime, Planner, Kernels, DefaultOrder) for name in get_args(kind)),
} - {"", "file"}
"""Formats and runtimes, and what targets say in their names."""


def asked_names(tree: ast.Module) -> Iterator[str]:
    """Yield the comparisons of a module with the name of a format, a runtime, or what targets call after one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            found = {
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            if not NAMED.isdisjoint(found):
                yield ast.unparse(node)


def test_the_names_of_formats_and_runtimes_decide_only_in_their_rooms() -> None:
    elsewhere = [path for path in MODULES if room_of(name_of(path)) is None]
    assert [(name_of(path), asked) for path in elsewhere for asked in asked_names(tree_of(path))] == []


MOST_MEMBERS = 12
_INTERFACES = {"Protocol", "ABC", "Capability"}
_LARGER = {"commands/optimize/rewrite Rewrite"}
"""What a single method of a rewrite replaces; nothing joins it."""


def members_of(tree: ast.Module) -> dict[str, int]:
    """Return how many members the protocols and abstract classes of a module have, those that they inherit left out."""
    return {
        node.name: sum(isinstance(one, ast.FunctionDef | ast.AnnAssign) for one in node.body)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not {ast.unparse(one) for one in node.bases}.isdisjoint(_INTERFACES)
    }


def test_protocols_are_small() -> None:
    counts = {f"{name_of(path)} {kind}": count for path in MODULES for kind, count in members_of(tree_of(path)).items()}
    assert len(counts) > 2 * MOST_MEMBERS
    assert {kind for kind, count in counts.items() if count > MOST_MEMBERS} <= _LARGER


@pytest.mark.parametrize(
    "source",
    [
        'target.kernels == "litert"',
        'rules.default_order != "onnxruntime"',
        'target.kernels in {"", "cmsis-nn"}',
        '"tflm" == name',
        'match name:\n    case "onnx" | "tflite":\n        pass',
    ],
)
def test_such_a_comparison_is_found(source: str) -> None:
    assert list(asked_names(ast.parse(source)))
    other = 'target.default_order == "file" and target.kernels == "" or name == "y"'
    assert not list(asked_names(ast.parse(other)))


def test_modules_are_not_too_long() -> None:
    lengths = {name_of(path): len(text_of(path).splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("memsched", set()),
        ("memsched.base.errors", set()),
        ("memsched.graph.liveness", set()),
        ("memsched.check.schedule", set()),
        ("memsched.targets.load", set()),
        ("memsched.lowering.apply", set()),
        ("memsched.solve.allocate.arena", set()),
        ("memsched.rewrites.recompute.decompose", set()),
        ("memsched.formats.tflite.model", set()),
        ("memsched.formats.tflite.new_file", set()),
        ("memsched.formats.tflite.rewriter", set()),
        ("memsched.cli.main", USED_BY_EVERY_COMMAND),
    ],
)
def test_nothing_heavy_is_loaded_at_import(module: str, allowed: set[str]) -> None:
    code = f"import sys, {module}; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY <= allowed


@pytest.mark.parametrize("module", ["memsched", "memsched.cli.main"])
def test_types_of_reports_are_not_loaded_before_a_command_needs_them(module: str) -> None:
    code = f"import sys, {module}; print('msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


PARTICIPLES = {
    "Asked", "Built", "Chosen", "Condensed", "Distributed", "Dropped", "Executed", "Followed", "Found",
    "Given", "Grouped", "Joined", "Judged", "Lowered", "Merged", "Mirrored", "Needed", "Ordered", "Permitted",
    "Pinned", "Placed", "Planned", "Predicted", "Prepared", "Proven", "Reached", "Rematerialised",
    "Rewritten", "Scaled", "Settled", "Shifted", "Solved", "Sorted", "Staged", "Stored", "Strided", "Taken",
    "Tiled", "Traced", "Transposed", "Wanted", "Written",
}  # fmt: skip


def class_names(path: Path) -> list[str]:
    """Return the names of a module's classes, without the underscore of private ones."""
    return [one.name.lstrip("_") for one in ast.walk(tree_of(path)) if isinstance(one, ast.ClassDef)]


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for name in class_names(path):
            places.setdefault(name, []).append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_types_are_named_by_nouns() -> None:
    named = {name_of(path): PARTICIPLES.intersection(class_names(path)) for path in MODULES}
    assert {name: found for name, found in named.items() if found} == {}
