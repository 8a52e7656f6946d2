"""Parts of ops of a TFLite model as models of their own, with no constants but those that they read, cut to size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.base.errors import ModelError
from memsched.formats.module import Module
from memsched.formats.segment import SegmentModel
from memsched.formats.staging import describe
from memsched.formats.tflite.assembly import Item, Numbers, References
from memsched.formats.tflite.model import FileSubgraph, parse
from memsched.formats.tflite.new_file import NewSubgraph, Source, new_file
from memsched.formats.tflite.reader import TfliteNative
from memsched.formats.tflite.rewriter import GraphRewriter
from memsched.formats.tflite.schema import SubgraphSlot
from memsched.formats.tflite.segments import together
from memsched.graph.model import Graph

__all__ = ["TflitePartsWriter"]


class TflitePartsWriter:
    """Writes graphs whose ops are, or are made from, those of the main graph of ``module``.

    The whole file with its main graph rewritten comes first, then a new one out of what of it is used.
    """

    def __init__(self, module: Module) -> None:
        """Refuse what no part of can be written.

        Raises:
            ModelError: An operator executes other subgraphs, or several use one state.
        """
        self._module = module
        self._native: TfliteNative = module.native
        subgraph = self._native.model.subgraphs[0]
        steps = self._native.mappings[0].operators
        for op, number in zip(module.graph.ops, steps, strict=True):
            if subgraph.operators[number].bodies:
                raise ModelError(
                    f"{describe(module.path)}: op '{op.name}' ({op.type}) executes other graphs, which are not "
                    "distributed",
                    code="executes-graphs",
                )
        if any(together(module)):
            raise ModelError(
                f"{describe(module.path)} keeps a state, which no two devices can share", code="state-shared"
            )

    def constant_bytes(self) -> dict[int, dict[int, int]]:
        """Return per op of the main graph the bytes of the constants that the file holds, by the input's position."""
        subgraph = self._native.model.subgraphs[0]
        return {
            op: {
                place: subgraph.tensors[tensor].size
                for place, tensor in enumerate(subgraph.operators[number].inputs)
                if tensor >= 0 and subgraph.tensors[tensor].has_data
            }
            for op, number in enumerate(self._native.mappings[0].operators)
        }

    def write(self, graph: Graph, parts: Sequence[int], metadata: Mapping[str, str]) -> SegmentModel:
        """Return the model of ``graph``, whose ops are executed as they stand; see `PartWriter.write`.

        Raises:
            InternalError: The graph does not fit the module.
            ModelError: A constant cannot be cut, or the file is of a later schema.
        """
        try:
            rewriter = _PartRewriter(self._module, self._native, graph, parts)
            model = parse(rewriter.file(range(len(graph.ops))))
            main = _main(model.subgraphs[0], graph, rewriter)
            data = new_file(Source.of(model), [main], metadata)
        except ModelError as error:
            raise error.at(f"{describe(self._module.path)}: a part of the model cannot be written") from None
        tensors = [model.subgraphs[0].tensors[number] for number in main.tensors]
        stored = {tensor.buffer: len(model.contents(tensor.buffer)) for tensor in tensors if tensor.has_data}
        return SegmentModel(data, sum(stored.values()))


class _PartRewriter(GraphRewriter):
    """Rewrites the main graph to one of parts of its values, whose inputs and outputs are parts as well.

    Attributes:
        values: The file's number of each tensor of the graph.
    """

    def __init__(self, module: Module, native: TfliteNative, graph: Graph, parts: Sequence[int]) -> None:
        self._parts = parts
        super().__init__(module, native, graph)
        for tensor in graph.inputs:
            self._place(tensor, self._file_number(tensor))

    @property
    def values(self) -> list[int]:
        return [self._index[tensor.name] for tensor in self._graph.tensors]

    def _file_number(self, tensor: int) -> int:
        return self._all_numbers[self._parts[tensor]]

    def _existing(self, mapping: Sequence[int]) -> tuple[dict[str, int], list[int]]:
        """Return no tensor: even whole ones may have names that others have in the file."""
        self._all_numbers = mapping
        return {}, []

    def _changed_border(self, mapping: Sequence[int]) -> dict[int, int]:
        del mapping
        return {}

    def _place(self, tensor: int, like: int) -> int:
        """Return the number of a tensor; whatever makes it, it has the type and the quantisation of its whole."""
        del like
        return super()._place(tensor, self._file_number(tensor))

    def _lists(self, operators: Sequence[Item]) -> dict[int, Item]:
        numbers = self.values
        return {
            SubgraphSlot.TENSORS: References(self._tensors),
            SubgraphSlot.OPERATORS: References(operators),
            SubgraphSlot.INPUTS: Numbers("int32", [numbers[tensor] for tensor in self._graph.inputs]),
            SubgraphSlot.OUTPUTS: Numbers("int32", [numbers[tensor] for tensor in self._graph.outputs]),
        }


def _main(subgraph: FileSubgraph, graph: Graph, rewriter: _PartRewriter) -> NewSubgraph:
    """Return what of a rewritten file is used: the graph's operators, behind others that compute what they read."""
    numbers = rewriter.values
    count = len(subgraph.operators) - len(graph.ops)
    kept = list(range(count, len(subgraph.operators)))
    read = {tensor for number in kept for tensor in subgraph.operators[number].inputs}
    for number in reversed(range(count)):
        if not read.isdisjoint(subgraph.operators[number].outputs):
            kept.insert(0, number)
            read.update(subgraph.operators[number].inputs)
    used = {*numbers, *(one for number in kept for one in subgraph.operators[number].outputs), *read} - {-1}
    names = dict(zip(numbers, (tensor.name for tensor in graph.tensors), strict=True))
    return NewSubgraph(0, tuple(kept), tuple(sorted(used)), subgraph.inputs, subgraph.outputs, names)
