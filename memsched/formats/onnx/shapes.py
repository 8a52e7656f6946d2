"""The shapes of all values: ONNX's inference, then ONNX Runtime's, helped by what the user states.

The inference works on a copy without weights, and without ONNX's data propagation: that lays out every vector it meets
as a shape, at 140 bytes per element, and `folding` follows shape arithmetic instead. What the file declares and
what follows from its operators may differ; ONNX Runtime then runs by the operators, so they win and a note says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from onnx import GraphProto, ModelProto, ValueInfoProto, shape_inference

from memsched.base.errors import ModelError
from memsched.base.shown import ROWS_SHOWN
from memsched.formats.module import LoadOptions, ObservedSizes
from memsched.formats.onnx import branches, folding, loops, observed, resolved, symbolic
from memsched.formats.onnx.inference_copy import DEFERRED, defer, inference_copy
from memsched.formats.onnx.stated import Statements, is_settled
from memsched.formats.onnx.structure import (
    Scope,
    graphs_like,
    graphs_of,
    initializers,
    sparse_name,
    values_of,
)
from memsched.formats.onnx.types import SHAPE_ELEMENTS, ValueType, element_name, merge, value_type

__all__ = ["Shapes", "infer"]

OF_ONE_RUN: Final = "sizes that nothing in the file tells are those of one run on"

_ROUNDS: Final = 16
_MOST_NODES: Final = 1_000_000
"""Nodes whose outputs are inferred in all rounds together, where `_ROUNDS` take fewer: every layer may want some."""

_CLASH: Final = "Inferred shape and existing shape differ"
_ELEMENT_CLASH: Final = re.compile(r"Inferred elem type differs from existing elem type: \((\d+)\) vs \((\d+)\)")
_REASON: Final = re.compile(r"\(op_type:([^,()]*)(?:, node name: ([^)]*))?\): (?:\[\w+\] ?)?([^\n]*)")


@dataclass(slots=True)
class Shapes:
    """What is known of the values of a model.

    Attributes:
        types: Per scope (as `analyse` lists them) and name.
        reasons: Per node name what ONNX's inference complained about.
        notes: Contradictions that were settled, and what was assumed.
        stated: Per scope what the file tells by itself, as a runtime knows it that opens the file; lengths are
            numbers, the file's own names, or "". Empty: ``types`` are just that.
        idle: The scopes that are never executed: branches that no If takes at these sizes, with what is below them.
    """

    types: list[dict[str, ValueType]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stated: list[dict[str, ValueType]] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)

    def of(self, scopes: Sequence[Scope], index: int, name: str) -> ValueType:
        """Return the type of ``name`` as graph ``index`` sees it."""
        while index >= 0:
            if name in scopes[index].defined:
                return self.types[index].get(name, ValueType())
            index = scopes[index].parent
        return ValueType()

    def unstated(self, index: int, name: str, rank: int) -> tuple[int | str, ...] | None:
        """Return what the file itself tells of the ``rank`` dimensions of a value of graph ``index``; None: all."""
        found = self.stated[index].get(name, ValueType()) if self.stated else None
        if found is None or found.known():
            return None
        return ("",) * rank if found.dims is None or len(found.dims) != rank else found.dims


def infer(light: ModelProto, scopes: Sequence[Scope], options: LoadOptions) -> Shapes:
    """Return the types of all values of ``light``, whose scopes are ``scopes``.

    Raises:
        ModelError: A declared shape or type is impossible.
        UsageError: An option names nothing in the model or contradicts it.
    """
    inference = _Inference(light, scopes, options)
    inference.run()
    inference.follow()
    if inference.resolve():
        inference.follow()
    asked = inference.ask_runtime()
    if options.observed is not None:
        inference.observe(options.observed)
    result = inference.result()
    if asked or options.dims or options.input_shapes or options.observed is not None:
        result.stated = _stated(light, scopes)
    return result


def _stated(light: ModelProto, scopes: Sequence[Scope]) -> list[dict[str, ValueType]]:
    """Return what ``light`` tells without any statement: what a runtime plans with, which folds constants as well."""
    alone = _Inference(light, scopes, LoadOptions())
    named = alone.statements.symbols()
    alone.run()
    alone.follow(by_itself=True)
    if alone.resolve():
        alone.follow(by_itself=True)
    return [
        {name: replace(found, dims=_named(found.dims, named)) for name, found in types.items()}
        for types in alone.result().types
    ]


def _named(dims: tuple[int | str, ...] | None, named: Collection[str]) -> tuple[int | str, ...] | None:
    """Return ``dims`` without the names that ONNX's inference makes up for lengths that it does not know."""
    return None if dims is None else tuple([dim if isinstance(dim, int) or dim in named else "" for dim in dims])


class _Inference:
    """The model under inference and what is known so far."""

    def __init__(self, light: ModelProto, scopes: Sequence[Scope], options: LoadOptions) -> None:
        self.light, self.scopes = light, scopes
        self.shapes = Shapes([{} for _ in scopes])
        self.statements = Statements(options)
        self.model = inference_copy(light, scopes)
        self.fixed = {name for scope in scopes for name in initializers(scope.graph)}
        self.deferred = defer(self._graphs(), self.model, {domain for scope in scopes for domain in scope.domains})
        self.statements.write_inputs(self.model.graph)
        settled = len(scopes) == 1 and all(map(is_settled, scopes[0].types))
        self.statements.write_dims(self._graphs(), first=True, inputs_only=settled)

    def _graphs(self) -> list[Scope]:
        return graphs_like(self.model.graph, self.scopes)

    def result(self) -> Shapes:
        """Return what is known, constants included."""
        for scope, types in zip(self.scopes, self.shapes.types, strict=True):
            same: dict[tuple[int, tuple[int, ...]], ValueType] = {}
            for tensor in scope.graph.initializer:
                key = tensor.data_type, tuple(tensor.dims)
                if key not in same:
                    same[key] = ValueType("tensor", *key)
                types[tensor.name] = same[key]
            for sparse in scope.graph.sparse_initializer:
                types[sparse_name(sparse)] = ValueType("a sparse tensor", sparse.values.data_type, tuple(sparse.dims))
        self.statements.check_used(self.scopes)
        self.shapes.notes.extend(self.statements.notes)
        return self.shapes

    def state(self) -> bool:
        """Write what the user states about values and dimensions that the inference named."""
        computed = self.statements.write_computed(self._graphs(), self.scopes, self.shapes.types)
        return self.statements.write_dims(self._graphs(), first=False) or computed

    def admit(self) -> bool:
        """Let ONNX infer the deferred nodes whose inputs have types by now: its code for them trusts that they do."""
        changed = False
        for index, scope in enumerate(self._graphs() if self.deferred else ()):
            for node in scope.graph.node:
                if node.domain.startswith(DEFERRED) and all(map(self._typed(index), node.input)):
                    node.domain = node.domain.removeprefix(DEFERRED)
                    changed = True
        return changed

    def _typed(self, index: int) -> Callable[[str], bool]:
        def typed(name: str) -> bool:
            found = self.shapes.of(self.scopes, index, name)
            return not name or found.kind != "tensor" or found.element > 0 or name in self.fixed

        return typed

    def fold(self) -> bool:
        """Carry out shape arithmetic where shapes are missing that it could tell, or where it may choose a branch."""
        if not self._branching() and not self._needs_help():
            return False
        return folding.fold(self.model, self.scopes, self.shapes.types, self.shapes.idle)

    def exclude(self) -> bool:
        """Where sizes are missing, exclude branches that cannot run at those that are known; return whether any are."""
        if not self._branching() or not self._needs_help():
            return False
        found = branches.impossible(self.model, self.scopes, self.shapes.types, self.shapes.idle)
        for index, reason in found.items():
            scope = self.scopes[index]
            node = self.scopes[scope.parent].graph.node[scope.node]
            self.shapes.notes.append(
                f"the {scope.attribute} of '{node.name or node.output[0]}' cannot run at these sizes ({reason})"
            )
        self.shapes.idle.update(found)
        return bool(found)

    def carry(self) -> bool:
        """Declare the shapes that Loops keep; return whether any are new."""
        return len(self.scopes) > 1 and loops.carry(self._graphs(), self.scopes, self.shapes.types)

    def _branching(self) -> bool:
        """Return whether there is an If."""
        return any(scope.attribute == "then_branch" for scope in self.scopes)

    def run(self) -> None:
        """Run ONNX's inference; where it finds contradictions, the operators win over the declarations."""
        try:
            self.model = shape_inference.infer_shapes(self.model, strict_mode=True)
        except Exception as error:  # the native code raises several types of its own
            message = str(error)
            self._keep_reasons(message)
            try:
                if _CLASH in message:
                    self._settle()
                self.model = shape_inference.infer_shapes(self.model)
            except Exception as again:
                if isinstance(again, ModelError):
                    raise
                self.shapes.reasons.setdefault("", f"{again}".partition("\n")[0])
        self._absorb()

    def follow(self, *, by_itself: bool = False) -> None:
        """Infer again for as long as something new is known: each layer's shapes may follow from those before it.

        Args:
            by_itself: Nothing is stated, and branches stay that could not run.
        """
        for _ in range(max(_ROUNDS, _MOST_NODES // max(1, self._nodes()))):
            if by_itself:
                more = self.admit() or folding.fold(self.model, self.scopes, self.shapes.types, self.shapes.idle)
            else:
                more = self.admit() or self.state() or self.fold() or self.exclude()
            more = more or self.carry()
            if not (more or self.reconsider()):
                break
            self.run()

    def _nodes(self) -> int:
        return sum(len(scope.graph.node) for scope in self.scopes)

    def resolve(self) -> bool:
        """Take what ONNX Runtime tells as it loads the model, where ONNX's inference stops; return whether it tells."""
        if not self._needs_help():
            return False
        types = self.shapes.types[0]
        made = itertools.chain.from_iterable(self.scopes[0].writes)
        unknown = {name for name in made if not _enough(types.get(name))}
        told = resolved.infer(self.model, self.light.graph.node)
        found = {name: told[name] for name in told if name in unknown}
        for name, (_, dims) in found.items():
            self._set_right(0, name, types.get(name, ValueType()), ValueType(dims=dims))
        if found:
            observed.write(self.model.graph, found)
            self.run()
        return bool(found)

    def ask_runtime(self) -> bool:
        """Ask ONNX Runtime's symbolic inference for what is still missing; return whether it answered."""
        asked = False
        for _ in range(2):
            if (
                self._nodes() > symbolic.MOST_NODES
                or not self._needs_help()
                or self._longest_vector() > symbolic.LONGEST_VECTOR
            ):
                break
            helped = symbolic.infer(self.model)
            if helped is None or len(graphs_of(helped.graph)) != len(self.scopes):
                break
            self.model, asked = helped, True
            self._absorb()
            if not self.state():
                break
            self.run()
        return asked

    def observe(self, sizes: ObservedSizes) -> None:
        """Take what is still missing from a run of the model."""
        if not self._needs_help():
            return
        left_out = observed.unexecuted(self.scopes, self.shapes.idle, sizes)
        self.shapes.idle.update(left_out)
        filled: list[str] = []
        for _ in range(_ROUNDS):
            found = observed.fill_in(self._graphs(), self.scopes, self.shapes.types, sizes)
            filled += found
            if not found or not self._needs_help():
                break
            self.run()
        if left_out:
            self.shapes.notes.append(
                f"bodies that did not run on {sizes.source} count nothing: {len(left_out)} of them"
            )
        if filled:
            names = _listed(list(dict.fromkeys(filled)))
            self.shapes.notes.append(
                f"{OF_ONE_RUN} {sizes.source}: {names}; where data decide them, other inputs may need more"
            )

    def _longest_vector(self) -> int:
        values = itertools.chain.from_iterable(types.values() for types in self.shapes.types)
        vectors = (value.lengths() or () for value in values if value.element in SHAPE_ELEMENTS)
        return max((dims[0] for dims in vectors if len(dims) == 1), default=0)

    def _absorb(self) -> None:
        """Add what the model now declares to what is known."""
        # Large models have few types, and reading one takes longer than recognising it.
        seen: dict[bytes, ValueType] = {}
        for types, scope in zip(self.shapes.types, self._graphs(), strict=True):
            for value in values_of(scope.graph):
                written = value.type.SerializeToString()
                found = seen.get(written)
                if found is None:
                    found = seen[written] = value_type(value.type)
                name = value.name  # made anew each time that it is asked for
                known = types.setdefault(name, found)
                if known is not found:
                    types[name] = merge(known, found)

    def _needs_help(self) -> bool:
        """Return whether more could be found: the main inputs are known, but something computed is not."""
        scopes, types = self.scopes, self.shapes.types
        unknown = any(
            _unknown(scope, types[index]) for index, scope in enumerate(scopes) if index not in self.shapes.idle
        )
        return unknown and all(
            value.name in scopes[0].constants or _enough(types[0].get(value.name)) for value in scopes[0].graph.input
        )

    def _keep_reasons(self, message: str) -> None:
        for match in _REASON.finditer(message):
            self.shapes.reasons.setdefault(match[2] or match[1], match[3].strip())
            clash = _ELEMENT_CLASH.search(match[3])
            if clash is not None:
                given, declared = (element_name(int(number)) or number for number in clash.groups())
                name = match[2] or match[1]
                raise ModelError(
                    f"op '{name}' gives elements of type {given} where the model declares {declared}",
                    code="type-differs",
                )

    def reconsider(self) -> bool:
        """Look for contradictions where sizes are missing; return whether there were any.

        ONNX's inference tells of none where there is an operator that it does not know.
        """
        if not self._needs_help():
            return False
        told = len(self.shapes.notes)
        try:
            self._settle()
        except ModelError:
            raise
        except Exception:  # the native code raises several types of its own
            return False
        return len(self.shapes.notes) > told

    def _settle(self) -> None:
        """Remove the declared shapes that contradict what follows from the operators alone."""
        bare = ModelProto()
        bare.CopyFrom(self.model)
        for scope in graphs_like(bare.graph, self.scopes):
            for value in _computed(scope.graph, self._chosen(scope)):
                value.type.tensor_type.ClearField("shape")
        inferred = shape_inference.infer_shapes(bare)
        pairs = zip(self._graphs(), graphs_like(inferred.graph, self.scopes), strict=True)
        for index, (mine, other) in enumerate(pairs):
            follows = {value.name: value_type(value.type) for value in values_of(other.graph)}
            for value in _computed(mine.graph, self._chosen(mine)):
                computed = follows.get(value.name, ValueType())
                if self._set_right(index, value.name, value_type(value.type), computed):
                    value.type.tensor_type.ClearField("shape")

    def _set_right(self, index: int, name: str, declared: ValueType, computed: ValueType) -> bool:
        """Forget the declared shape of a value of a graph, and note it, where it contradicts what is computed."""
        if not _contradict(declared, computed):
            return False
        self.shapes.notes.append(
            f"tensor '{name}' is declared as {_shown(declared)} but computed as {_shown(computed)}; "
            "the computed shape holds"
        )
        self.shapes.types[index].pop(name, None)
        return True

    def _chosen(self, scope: Scope) -> set[int]:
        """Return the nodes that execute one branch always: the types of their outputs follow from it."""
        return {node for node, bodies in scope.bodies.items() if self.shapes.idle.intersection(bodies)}


def _unknown(scope: Scope, types: Mapping[str, ValueType]) -> bool:
    """Return whether something that a graph computes is not known."""
    made = set(itertools.chain.from_iterable(scope.writes))
    made.difference_update(scope.constants, ("",))
    if made.difference(types):
        return True
    # Large models have few types.
    enough = {id(value): _enough(value) for value in {id(value): value for value in types.values()}.values()}
    return not all(enough.values()) and not all(enough[id(types[name])] for name in made)


def _computed(graph: GraphProto, chosen: Collection[int]) -> list[ValueInfoProto]:
    """The declarations of tensors that nodes compute, other than the ``chosen`` ones."""
    names = {name for number, node in enumerate(graph.node) if number not in chosen for name in node.output if name}
    declared = itertools.chain(graph.value_info, graph.output)
    return [value for value in declared if value.name in names and value.type.HasField("tensor_type")]


def _contradict(declared: ValueType, follows: ValueType) -> bool:
    if declared.dims is None or follows.dims is None:
        return False
    if len(declared.dims) != len(follows.dims):
        return True
    pairs = zip(declared.dims, follows.dims, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _shown(value: ValueType) -> str:
    return f"[{', '.join(str(dim) or '?' for dim in value.dims or ())}]"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS_SHOWN} more" if len(names) > ROWS_SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:ROWS_SHOWN]) + more


def _enough(value: ValueType | None) -> bool:
    return value is not None and (value.kind != "tensor" or value.known())
