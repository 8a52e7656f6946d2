"""The graph that a session executes: a model as ONNX Runtime's own optimisation rewrites it, with every size.

Sessions of most levels merge, fuse and lay out anew before they run, so that an order of the file's own nodes is no
order of what runs. What one session has rewritten can be stored, ordered, and opened without optimisation: then it is
executed as it is written, at the speed of that level.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from onnx import ModelProto

from memsched.base.errors import ModelError
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.reader import all_sizes_follow, sizes_that_follow
from memsched.formats.onnx.stated import declare
from memsched.formats.onnx.structure import initializers, op_type, values_of
from memsched.ops import movement, values, windows
from memsched.ops.table import families
from memsched.runtimes.child import run_in_child
from memsched.runtimes.onnxruntime.executed_names import BLOCKED
from memsched.runtimes.onnxruntime.observation import observe
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.sessions import ExecutedModel, Level
from memsched.targets.model import Target

__all__ = ["LEVELS", "executed_model", "executed_rules"]

LEVELS: Final[Mapping[str, Level]] = {"default": "all", "all": "all", "extended": "extended", "basic": "basic"}
"""Levels of graph optimisation by the sessions that have them; one without options has the highest."""

_BY_OPERANDS: Final = (families("axis reduction") | frozenset(movement.RULES)) - families("concatenation")
"""Operators whose outputs' sizes follow from their first input's and from the values of the others."""

_BY_SIZES: Final = (families("concatenation") | frozenset({*values.RULES, *windows.RULES})) - _BY_OPERANDS
"""Operators whose outputs' sizes follow from their inputs'."""

_REWRITE: Final = "memsched.runtimes.onnxruntime.executed_child:rewrite"


def executed_model(
    data: bytes, path: str, options: LoadOptions, session: str, *, seed: int, fix: bool = True
) -> ExecutedModel:
    """Return what sessions of a kind, one of `LEVELS`, execute of a model.

    Args:
        path: Where ``data`` was read from; "-" for standard input. External data lies beside it.
        seed: Of the inputs of the run that shows the sizes.
        fix: Fix the dimensions that the model leaves open to what ``options`` states: with open ones, ONNX Runtime
            writes nothing in place. They stay open where it refuses the fixed ones, as for a branch never taken.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
        ModelError: ONNX Runtime cannot load the model, or not write it.
        UsageError: It does not run.
    """
    ONNXRUNTIME.require("memsched optimize without --session")
    request = {
        "bytes": data,
        "folder": None if path == "-" else str(Path(path).absolute().parent),
        "level": LEVELS[session],
        "input_shapes": {name: list(shape) for name, shape in options.input_shapes.items()} if fix else {},
        "dims": dict(options.dims) if fix else {},
    }
    result = run_in_child(_REWRITE, request)
    if not result.ok:
        said = result.reason
        raise ModelError(f"onnxruntime cannot optimize it: {said}", code="not-loaded", location=path)
    found: Mapping[str, Any] = result.value
    stays_open = not found["fixed"] and bool(options.input_shapes or options.dims)
    kept = LoadOptions(feeds=options.feeds, assumed=options.assumed)
    if stays_open:
        kept = dataclasses.replace(options, settled=True, observed=None)
    shown = observe(found["bytes"], "-", kept, options.feeds, seed=seed, option="--session")
    made: bytes = found["bytes"]
    follows = not stays_open and options.observed is None and all_sizes_follow(data, path, options)
    made = _with_sizes(made, shown, None if follows else _certain(data, path, made))
    # What optimisation left in, such as weights that are dequantised, runs each time.
    shown = dataclasses.replace(shown, folded=False)
    return ExecutedModel(made, shown, LEVELS[session], found["block"], found["processor"], dict(found["fixed"]))


def _certain(data: bytes, path: str, made: bytes) -> set[str]:
    """Return the values of what was made of a model whose sizes every run shows alike, whatever its inputs hold."""
    graph = ModelProto.FromString(made).graph
    given = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.input}
    shapes = {name: tuple(dims) for name, dims in given.items() if dims and all(dims)}
    constants = {*initializers(graph), ""}
    certain = {*sizes_that_follow(data, path, LoadOptions(shapes)), *shapes, *constants}
    for node in graph.node:
        kind, read = op_type(node), node.input
        if certain.issuperset(read) and (
            node.domain == BLOCKED or kind in _BY_SIZES or (kind in _BY_OPERANDS and constants.issuperset(read[1:]))
        ):
            certain.update(node.output)
    return certain


def _with_sizes(data: bytes, shown: LoadOptions, certain: Container[str] | None) -> bytes:
    """Return a model with the sizes that a run showed stated for what it computes.

    The runtime infers none of its own operators' sizes, and where none is stated it writes nothing in place.

    Args:
        certain: The values whose sizes no other run can show otherwise; None for all.
    """
    model = ModelProto.FromString(data)
    known = {value.name for value in values_of(model.graph)}
    seen = {} if shown.observed is None else shown.observed.values.get("", {})
    for node in model.graph.node:
        for name in node.output:
            if name in seen and name not in known and (certain is None or name in certain):
                declare(model.graph.value_info, name, *seen[name])
    return bytes(model.SerializeToString(deterministic=True))


def executed_rules(target: Target) -> Target:
    """Return a target without the rules on what optimisation merges: here it has merged it already."""
    kept = tuple(
        rule
        for rule in target.views
        if not (rule.after or rule.before or rule.sole_reader or rule.constant != "any" or rule.match != "bytes")
    )
    return msgspec.structs.replace(target, views=kept)
