"""What is known of operators is known in memsched/ops alone: no other module keeps lists of their names.

Elsewhere operators may be listed for what is no property of theirs: how a file says something, or what the kernels of
one runtime do. `PERMITTED` names these lists, each with its reason; a new one is a reason to look at `memsched.ops`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import onnx.defs

from memsched.formats.tflite.schema import operator_types
from memsched.ops.table import OPERATORS
from tests.sources import MODULES, name_of, tree_of

MOST = 2
"""Names that may stand beside each other anywhere."""

PERMITTED = {
    # What the schema of a format says.
    "formats/onnx/attributes:CONSTANT_INPUTS": "the schema's names of inputs",
    "formats/onnx/assumed_sizes:_contradicts": "which axes of two inputs have one length, where inference lets it pass",
    "formats/onnx/attributes:_WEIGHTS": "the input whose shape ends with a kernel's that the file does not state",
    "formats/onnx/ranks:_RANKED": "the inputs whose length is a number of dimensions",
    "formats/onnx/structure:_CONSTANT_WITHOUT_INPUTS": "nodes without inputs that state a value",
    "formats/onnx/tables:_taken": "which axis of the weights is as long as one of the input",
    "formats/tflite/operator_codes:_VERSIONS": "the versions of operators in the file",
    "formats/tflite/options:CONSTANT_INPUTS": "what the options and inputs of the file are called",
    "formats/tflite/options:_OPTIONS": "what the options and inputs of the file are called",
    "formats/tflite/options:_REDUCTIONS": "which options the file has for them",
    "formats/tflite/options:_SUBGRAPHS": "which options name subgraphs",
    # What is written, or computed, for an operator: the table is what it is written with.
    "formats/onnx/blocks/sums:_REDUCED": "how a loop goes on with a sum",
    "formats/onnx/folding:_FOLDED": "what models compute lengths with: this bounds the work of reading",
    "formats/onnx/kernels:_MAKERS": "the kernels in C",
    "formats/tflite/kernels:_MAKERS": "the kernels in C",
    # What kernels of one runtime do.
    "formats/onnx/blocks/pattern:_IN_PLACE": "which kernels of ONNX Runtime write over what they read",
    "lowering/litert_kernels:_RULES": "memory that kernels of LiteRT ask for",
    "lowering/xnnpack:_ACTIVATIONS": "activations",
    "lowering/xnnpack:_FLOATS": "what LiteRT's default delegate accepts of floats",
    "lowering/xnnpack:_INTEGERS": "what LiteRT's default delegate accepts of integers",
    "runtimes/onnxruntime/pins:_PASSING": "what ONNX Runtime's optimisation drops",
    # Fused activations have names of operators.
    "formats/tflite/kernels:_RANGES": "activations",
    "graph/fixed_point:activation_range": "activations",
}
"""Lists by module and by what they are assigned to, or the function that they stand in."""

RUNTIME = "runtimes/tflm/"
"""What its modules list is what kernels of TensorFlow Lite Micro take, keep and look at: its sources, as tables."""

SPELLED = {
    "features/distribute/boxes:layout_of": "which format a graph is of",
    "formats/tflite/options:subgraph_references": "a dialect of the format",
    "formats/tflite/own_tensors:own_tensors": "an operator of the file's author",
    "runtimes/onnxruntime/inputs:_random_value": "no operator: what the runtime calls types of values",
    "runtimes/tflm/limits:_reason": "an operator of the file's author",
    "runtimes/tflm/resolver:resolver": "an operator of the file's author",
}
"""Functions that look at how the name of a type is spelled: what it says beside the operator."""


@cache
def names() -> frozenset[str]:
    """Return the names of all operators of both formats."""
    of_onnx = (schema.name for schema in onnx.defs.get_all_schemas())
    return frozenset({*OPERATORS, *of_onnx, *operator_types().values()})


def places(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node below a statement of a module, with the name of what it defines."""
    for statement in tree.body:
        inner = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        for one in inner:
            name = getattr(one, "name", "")
            targets = (
                one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
            )
            name = name or next((target.id for target in targets if isinstance(target, ast.Name)), "")
            yield from ((name, node) for node in ast.walk(one))


def listed(node: ast.AST) -> list[str]:
    """Return the names of operators that a literal collection, or a text of names, has."""
    entries: list[ast.expr | None] = []
    if isinstance(node, ast.Set | ast.List | ast.Tuple):
        entries = list(node.elts)
    elif isinstance(node, ast.Dict):
        entries = list(node.keys)
    texts = [one.value for one in entries if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        texts = [one.partition(":")[0] for one in node.value.split()] if node.value.isupper() else []
    return [one for one in texts if one in names()]


def lists() -> set[str]:
    """Return the places outside of memsched/ops where operators are listed."""
    found = set()
    for module in MODULES:
        place = name_of(module)
        if not place.startswith(("ops/", RUNTIME)):
            found |= {f"{place}:{name}" for name, node in places(tree_of(module)) if len(listed(node)) > MOST}
    return found


def test_operators_are_listed_in_one_place() -> None:
    assert lists() == set(PERMITTED), "what is a property of the operator belongs into memsched/ops"


def spelled(node: ast.AST) -> bool:
    """Whether an expression asks how the name of an operator's type is spelled."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return isinstance(node.left, ast.Constant) and isinstance(node.left.value, str) and of_type(node.comparators[0])
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_call and node.func.attr in {"startswith", "endswith"} and of_type(node.func.value)  # type: ignore[attr-defined]


def of_type(node: ast.AST) -> bool:
    """Whether an expression is the type of an op, as such or in capitals."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and of_type(node.func.value)
    return (isinstance(node, ast.Attribute) and node.attr in {"type", "op_type"}) or (
        isinstance(node, ast.Name) and node.id in {"kind", "op_type"}
    )


def test_no_name_of_an_operator_is_searched_for_a_word() -> None:
    found = set()
    for module in MODULES:
        found |= {f"{name_of(module)}:{name}" for name, node in places(tree_of(module)) if spelled(node)}
    assert found == set(SPELLED) | {"ops/tflite:foreign"}
