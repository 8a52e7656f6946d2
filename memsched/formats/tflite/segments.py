"""Parts of a TFLite model as models of their own: new files that hold copies of what they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memsched.base.errors import ModelError
from memsched.formats.module import Module
from memsched.formats.segment import check_fit
from memsched.formats.staging import describe
from memsched.formats.tflite import state
from memsched.formats.tflite.model import FileModel, parse
from memsched.formats.tflite.new_file import NewSubgraph, Source, new_file
from memsched.formats.tflite.reader import TfliteNative

if TYPE_CHECKING:
    from memsched.formats.segment import Segment

__all__ = ["TfliteCutter", "together"]

_NOT_HANDED_OVER: Final = frozenset({"resource", "variant"})


def together(module: Module) -> tuple[tuple[int, ...], ...]:
    """Return what `memsched.formats.segments.together` returns."""
    native: TfliteNative = module.native
    model, steps = native.model, native.mappings[0].operators
    return state.together(model.subgraphs[0], steps, state.operator_effects(model)[0])


class TfliteCutter:
    """Makes models of parts of one module.

    The new file has no signatures, because they name the inputs and outputs of the whole model. Of metadata it keeps
    what holds for any part, and states in its own numbers which operators must keep their order; the plan of offline
    memory allocation is for other tensors and goes. Bytes that lie outside the flatbuffer move into it. Values have
    the names that the module gives them: the file's own, where that is not empty and no other tensor's.
    """

    def __init__(self, module: Module) -> None:
        native: TfliteNative = module.native
        self._module = module
        self._model: FileModel = native.model
        self._steps = native.mappings[0].operators
        self._source = Source.of(native.model)
        self._together = together(module)
        subgraph = native.model.subgraphs[0]
        names = (tensor.name for tensor in module.graphs[0].tensors)
        self._names = dict(zip(native.mappings[0].tensors, names, strict=True))
        self._index = {name: tensor for tensor, name in self._names.items()}
        for number, tensor in enumerate(subgraph.tensors):
            # Outputs of the model that are constants are no values of the graph.
            self._index.setdefault(tensor.name, number)
        steps = set(self._steps)
        self._computed = {
            tensor: number
            for number, operator in enumerate(subgraph.operators)
            if number not in steps
            for tensor in operator.outputs
            if tensor >= 0
        }

    def cut(self, segment: Segment, metadata: Mapping[str, str]) -> bytes:
        """Return what `memsched.formats.segments.extract` returns."""
        check_fit(self._module, segment, {name for name, at in self._index.items() if at not in self._names})
        self._refuse_states(segment)
        try:
            main = self._main(segment)
            parts = [main, *self._bodies(main)]
            data = new_file(self._source, parts, metadata)
            _check(self._model, data, parts)
        except ModelError as error:
            raise error.at(f"{describe(self._module.path)}: a segment cannot be written") from None
        return data

    def _refuse_states(self, segment: Segment) -> None:
        """Refuse a segment that holds some of the ops of one state, or hands over a handle to one."""
        graph, inside = self._module.graphs[0], set(segment.ops)
        for group in self._together:
            outside = [op for op in group if op not in inside]
            if outside and len(outside) < len(group):
                one, other = next(op for op in group if op in inside), outside[0]
                names = f"'{graph.ops[one].name}' and '{graph.ops[other].name}'"
                raise ModelError(
                    f"operators {names} use one state{self._states(group)} and have to be in one segment",
                    code="state-shared",
                    location=describe(self._module.path),
                )
        kinds = {tensor.name: tensor.dtype for tensor in graph.tensors}
        for name in (*segment.inputs, *segment.outputs):
            if kinds.get(name) in _NOT_HANDED_OVER:
                raise ModelError(
                    f"'{name}' is a {kinds[name]}, which cannot go from one segment to another",
                    code="not-handed-over",
                    location=describe(self._module.path),
                )

    def _states(self, group: Sequence[int]) -> str:
        subgraph = self._model.subgraphs[0]
        operators = [subgraph.operators[self._steps[op]] for op in group]
        touched = (tensor for one in operators for tensor in (*one.inputs, *one.outputs) if tensor >= 0)
        tensors = [subgraph.tensors[tensor] for tensor in touched]
        named = [one.name for one in tensors if one.variable or one.dtype in _NOT_HANDED_OVER]
        return f" ('{named[0]}')" if named else ""

    def _main(self, segment: Segment) -> NewSubgraph:
        subgraph = self._model.subgraphs[0]
        operators: dict[int, None] = {}
        for op in segment.ops:
            fresh = set()
            waiting = [self._steps[op]]
            while waiting:
                for tensor in subgraph.operators[waiting.pop()].inputs:
                    maker = self._computed.get(tensor)
                    if maker is not None and maker not in fresh and maker not in operators:
                        fresh.add(maker)
                        waiting.append(maker)
            # What computes constants stands directly before the first that needs it, in the file's order.
            operators.update(dict.fromkeys(sorted(fresh)))
            operators[self._steps[op]] = None
        inputs = [self._index[name] for name in segment.inputs]
        outputs = [self._index[name] for name in segment.outputs]
        used = self._used(0, operators, (*inputs, *outputs))
        values = [tensor for tensor in used if tensor in self._names]
        # Values first: they keep their names where a reader meets the same name again.
        tensors = [*values, *(tensor for tensor in used if tensor not in self._names)]
        names = {tensor: self._names[tensor] for tensor in values}
        return NewSubgraph(0, tuple(operators), tuple(tensors), tuple(inputs), tuple(outputs), names)

    def _used(self, subgraph: int, operators: Iterable[int], more: Iterable[int]) -> list[int]:
        used = set(more)
        for number in operators:
            operator = self._model.subgraphs[subgraph].operators[number]
            used.update(operator.inputs, operator.outputs, operator.intermediates)
        used.discard(-1)
        for tensor in sorted(used):
            used.update(self._source.scales(subgraph, tensor))
        return sorted(used)

    def _bodies(self, main: NewSubgraph) -> list[NewSubgraph]:
        """Return the subgraphs that the operators of ``main`` execute, in the file's order."""
        model = self._model
        found: set[int] = set()
        waiting = [body for number in main.operators for body in model.subgraphs[0].operators[number].bodies]
        while waiting:
            body = waiting.pop()
            if body not in found:
                found.add(body)
                waiting.extend(inner for one in model.subgraphs[body].operators for inner in one.bodies)
        parts = []
        for body in sorted(found):
            subgraph = model.subgraphs[body]
            operators = range(len(subgraph.operators))
            used = self._used(body, operators, (*subgraph.inputs, *subgraph.outputs))
            parts.append(NewSubgraph(body, tuple(operators), tuple(used), subgraph.inputs, subgraph.outputs, {}))
        return parts


def _check(model: FileModel, data: bytes, parts: Sequence[NewSubgraph]) -> None:
    """Read the result back: the operators must be the old ones, on tensors like the old ones."""
    written = parse(data)
    for part, new in zip(parts, written.subgraphs, strict=True):
        old = model.subgraphs[part.source]
        place = {tensor: number for number, tensor in enumerate(part.tensors)}
        place[-1] = -1
        for tensor, now in zip(part.tensors, new.tensors, strict=True):
            was = old.tensors[tensor]
            if (was.shape, was.dtype, was.variable, was.has_data) != (now.shape, now.dtype, now.variable, now.has_data):
                raise ModelError(f"tensor '{was.name}' does not read back; the file is damaged", code="damaged")
            if was.has_data and model.contents(was.buffer) != written.contents(now.buffer):
                raise ModelError(f"the values of '{was.name}' do not read back; the file is damaged", code="damaged")
        for number, operator in zip(part.operators, new.operators, strict=True):
            was_operator = old.operators[number]
            expected = (was_operator.type, was_operator.attributes, tuple(place[one] for one in was_operator.inputs))
            if (operator.type, operator.attributes, operator.inputs) != expected:
                raise ModelError(
                    f"operator {number} ({was_operator.type}) does not read back; the file is damaged", code="damaged"
                )
