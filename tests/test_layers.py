"""The house's floors (docs/architecture.md): who may import whom, how long a module may be, what is loaded when."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memsched

ROOT = Path(memsched.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST_MODULE = 500

FLOORS = {
    "errors": 0,
    "suggestions": 0,
    "typed": 0,
    "units": 0,
    "graph": 0,
    "targets": 1,
    "lowering": 2,
    "fusion": 2,
    "regions": 2,
    "schedule": 3,
    "allocate": 3,
    "joint": 4,
    "tiling": 4,
    "remat": 4,
    "pipeline": 4,
    "distribute": 4,
    "formats": 5,
    "runtimes": 5,
    "report": 5,
    "cli": 7,
    "__main__": 8,
    "__init__": 8,
}
ACROSS = {("runtimes", "formats")}
"""The one way across a floor: a runtime runs the files that the formats know, and never the other way."""

COMPILER_FLOOR = 6
"""The modules beside the packages: compiler.py and its parts."""

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


def part_of(path: Path) -> str:
    """Return the package directly below memsched that a module lies in, or the module's own name."""
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def floor_of(part: str) -> int:
    return FLOORS.get(part, COMPILER_FLOOR)


def imports(path: Path) -> Iterator[str]:
    """Yield the parts of memsched that a module imports anywhere, functions and type checking included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which floor is meant"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "memsched" else [module]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "memsched" and rest and rest != "__version__":
                yield rest.split(".", maxsplit=1)[0]


def test_there_are_modules_to_check() -> None:
    assert {"graph", "targets", "lowering", "fusion", "schedule", "allocate"} <= {part_of(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_floors_below(path: Path) -> None:
    part = part_of(path)
    for imported in imports(path):
        same = (
            imported == part
            or (part, imported) in ACROSS
            or floor_of(imported) == floor_of(part) in {0, COMPILER_FLOOR}
        )
        assert same or floor_of(imported) < floor_of(part), f"{part} may not import {imported}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_not_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("memsched", set()),
        ("memsched.errors", set()),
        ("memsched.graph.liveness", set()),
        ("memsched.check.schedule", set()),
        ("memsched.targets.load", set()),
        ("memsched.lowering.apply", set()),
        ("memsched.allocate.arena", set()),
        ("memsched.remat.decompose", set()),
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
