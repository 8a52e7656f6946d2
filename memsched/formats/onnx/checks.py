"""What is wrong with an ONNX model that would otherwise come up later, less clearly, or as a crash of native code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from memsched.base.errors import ModelError
from memsched.formats.onnx.structure import Scope, domain_of

__all__ = ["check_header", "check_inputs", "check_names", "check_nodes", "import_operators"]

_EQUATION: Final = re.compile(rb"[A-Za-z,.\-> ]*")
_CHECKED: Final = frozenset({"Einsum", "Split"})


def check_header(model: ModelProto) -> None:
    """Check what a model must state beside its graph.

    Raises:
        ModelError: No IR version or one that is too new, no operator set, or no nodes.
    """
    if model.ir_version < 1:
        raise ModelError("the model states no IR version", code="no-ir-version")
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"IR version {model.ir_version} is newer than version {onnx.IR_VERSION} "
            f"that the installed onnx {onnx.__version__} knows",
            action="update onnx",
            code="newer-ir-version",
        )
    if not model.graph.node:
        raise ModelError("the graph has no nodes", code="no-ops")
    if not model.opset_import and model.ir_version >= 3:
        raise ModelError("the model imports no operator set (opset_import is empty)", code="no-opset")


def import_operators(model: ModelProto, scopes: Sequence[Scope]) -> None:
    """Check that the version of ONNX's own operators is stated; IR versions before 3 mean version 1 without saying so.

    Raises:
        ModelError: It is not, and the model has such operators.
    """
    if any(opset.domain in {"", "ai.onnx"} for opset in model.opset_import):
        return
    if model.ir_version < 3:
        model.opset_import.add(version=1)
        return
    for scope in scopes:
        for node in scope.graph.node:
            if not domain_of(node):
                raise ModelError(
                    f"op '{_name(node)}' is ONNX's own, but opset_import names no version of ONNX's operators",
                    code="no-opset",
                )


def check_inputs(graph: GraphProto, scope: Scope) -> None:
    """Check that the main graph's inputs have types.

    Raises:
        ModelError: One that is no constant has none.
    """
    for value in graph.input:
        if value.name not in scope.constants and value.type.WhichOneof("value") is None:
            raise ModelError(f"graph input '{value.name}' states no type", code="no-type")


def check_names(scopes: Sequence[Scope]) -> None:
    """Check that no two nodes of a graph have one name, as the specification demands and ONNX Runtime insists on.

    Raises:
        ModelError: Two nodes have.
    """
    for scope in scopes:
        if len(scope.given) == len(set(scope.given)):
            continue
        # What a Constant computes becomes a weight before names are compared.
        count = Counter(
            name for name, kind in zip(scope.given, scope.kinds, strict=True) if name and kind != "Constant"
        )
        for name, times in count.items():
            if times > 1:
                raise ModelError(
                    f"{times} nodes of graph '{scope.graph.name}' have the name '{name}', and ONNX permits each name "
                    "once in a graph",
                    action="rename them",
                    code="node-twice",
                )


def check_nodes(scopes: Sequence[Scope]) -> None:
    """Check that names are text, and what ONNX's native inference trusts in so far that it crashes or never ends.

    Raises:
        ModelError: A name is no UTF-8 text, a Split's ``num_outputs`` is not its number of outputs, or an Einsum's
            equation holds other signs than an equation has.
    """
    for scope in scopes:
        # The protobuf library hands out what is no UTF-8 as bytes.
        if bytes in {*map(type, scope.defined), *map(type, scope.free)}:
            raise ModelError(
                f"a tensor of graph '{scope.graph.name}' has a name that is no UTF-8 text", code="not-utf8"
            )
        if bytes in {*map(type, scope.operators), *map(type, scope.domains), *map(type, scope.given)}:
            raise ModelError(
                f"a node of graph '{scope.graph.name}' has a name or type that is no UTF-8 text", code="not-utf8"
            )
        if not scope.operators.isdisjoint(_CHECKED):
            for node in scope.graph.node:
                _check_attributes(node)


def _check_attributes(node: NodeProto) -> None:
    for attribute in node.attribute:
        if node.op_type == "Split" and attribute.name == "num_outputs" and attribute.i != len(node.output):
            raise ModelError(
                f"op '{_name(node)}' splits into {attribute.i} parts, but has {len(node.output)} outputs",
                code="bad-attribute",
            )
        if node.op_type == "Einsum" and attribute.name == "equation" and not _EQUATION.fullmatch(attribute.s):
            raise ModelError(f"op '{_name(node)}' has an equation that is none", code="bad-attribute")


def _name(node: NodeProto) -> str:
    return str(node.name or next((name for name in node.output if name), node.op_type))
