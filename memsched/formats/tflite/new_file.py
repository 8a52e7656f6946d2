"""A new TFLite file out of parts of an old one, nothing of which refers to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.formats.tflite import metadata as tflite_metadata
from memsched.formats.tflite.assembly import Blob, Item, Numbers, References, Scalar, TableItem, Text, assemble
from memsched.formats.tflite.copies import Copier
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel
from memsched.formats.tflite.options import subgraph_fields
from memsched.formats.tflite.package import field, members
from memsched.formats.tflite.schema import (
    BufferSlot,
    MetadataSlot,
    ModelSlot,
    OperatorSlot,
    QuantizationSlot,
    SubgraphSlot,
    TensorSlot,
)
from memsched.formats.tflite.tables import copied

__all__ = ["NewSubgraph", "Source", "new_file"]

_KEPT_METADATA: Final = frozenset({"CONVERSION_METADATA", "min_runtime_version", "reduced_precision_support"})
"""What metadata holds for parts of a model as for the whole; any other may count tensors, operators or inputs."""

_BY_TENSOR: Final = frozenset({"BlockwiseQuantization", "MultiAxisQuantization"})
"""Details of a quantisation whose scales and zero points are tensors."""


class NewSubgraph(FrozenValue, frozen=True):
    """A subgraph of the new file.

    Attributes:
        source: Its index in the old file.
        operators: Of the old subgraph, in their new order.
        tensors: Of the old subgraph, in their new order.
        inputs: Old indices, as are ``outputs``.
        names: New names of some of the tensors.
    """

    source: int
    operators: tuple[int, ...]
    tensors: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: Mapping[int, str]


class Source(FrozenValue, frozen=True):
    """The old file with the places of its tables, and what was copied of it."""

    model: FileModel
    root: FlatbufferTable
    subgraphs: tuple[FlatbufferTable, ...]
    tensors: tuple[tuple[FlatbufferTable, ...], ...]
    operators: tuple[tuple[FlatbufferTable, ...], ...]
    codes: tuple[FlatbufferTable, ...]
    copier: Copier

    @staticmethod
    def of(model: FileModel) -> Source:
        """Return the source that ``model`` was parsed from."""
        file = FlatFile(model.data)
        root = file.root()
        subgraphs = tuple(root.tables(ModelSlot.SUBGRAPHS))
        return Source(
            model=model,
            root=root,
            subgraphs=subgraphs,
            tensors=tuple(tuple(table.tables(SubgraphSlot.TENSORS)) for table in subgraphs),
            operators=tuple(tuple(table.tables(SubgraphSlot.OPERATORS)) for table in subgraphs),
            codes=tuple(root.tables(ModelSlot.OPERATOR_CODES)),
            copier=Copier(file),
        )

    def scales(self, subgraph: int, tensor: int) -> list[int]:
        """Return the tensors that hold scales and zero points of ``tensor``.

        Raises:
            ModelError: They do not exist.
        """
        found = self.details(subgraph, tensor)
        if found is None:
            return []
        named = [found[1].number(slot, "int32") for slot in _tensor_slots(found[0])]
        if any(one >= len(self.tensors[subgraph]) for one in named):
            raise ModelError("a quantisation names tensors that do not exist", code="stored-tensor-index")
        return [one for one in named if one >= 0]

    def details(self, subgraph: int, tensor: int) -> tuple[str, FlatbufferTable] | None:
        """Return the kind and the table of a quantisation that names tensors."""
        quantization = self.tensors[subgraph][tensor].table(TensorSlot.QUANTIZATION)
        if quantization is None:
            return None
        kind = members("QuantizationDetails").get(quantization.number(QuantizationSlot.DETAILS_TYPE, "uint8"), "")
        table = quantization.table(QuantizationSlot.DETAILS) if kind in _BY_TENSOR else None
        return None if table is None else (kind, table)


def new_file(source: Source, parts: Sequence[NewSubgraph], metadata: Mapping[str, str]) -> bytes:
    """Return a file whose subgraphs are ``parts``, the main one first.

    Raises:
        ModelError: The old file is of a later schema or damaged, or the new one would be too large.
    """
    return _NewFile(source, parts).data(metadata)


class _NewFile:
    def __init__(self, source: Source, parts: Sequence[NewSubgraph]) -> None:
        self._source, self._parts = source, parts
        self._subgraph = {part.source: number for number, part in enumerate(parts)}
        used = {
            source.operators[part.source][number].number(OperatorSlot.OPCODE_INDEX, "uint32")
            for part in parts
            for number in part.operators
        }
        self._code = {old: new for new, old in enumerate(sorted(used))}
        # The first buffer is empty by convention, and what has no data refers to it.
        self._buffers: list[Item] = [TableItem({})]
        self._buffer: dict[int, int] = {}

    def data(self, metadata: Mapping[str, str]) -> bytes:
        root, copier = self._source.root, self._source.copier
        subgraphs = [self._subgraph_item(part) for part in self._parts]
        kept: dict[int, Item] = {}
        for slot, kind in (
            (ModelSlot.EXTERNAL_BUFFER_GROUPS, "ExternalBufferGroup"),
            (ModelSlot.EXTERNAL_BUFFERS, "ExternalBuffer"),
        ):
            if tables := root.tables(slot):
                kept[slot] = References([copier.table(table, kind) for table in tables])
        entries = self._metadata(metadata)
        fields: dict[int, Scalar | Item] = {
            ModelSlot.VERSION: Scalar("uint32", root.number(ModelSlot.VERSION, "uint32")),
            ModelSlot.OPERATOR_CODES: References(
                [copier.table(self._source.codes[old], "OperatorCode") for old in self._code]
            ),
            ModelSlot.SUBGRAPHS: References(subgraphs),
            ModelSlot.DESCRIPTION: Text(root.text(ModelSlot.DESCRIPTION).encode()),
            ModelSlot.BUFFERS: References(self._buffers),
            **kept,
        }
        if entries:
            fields[ModelSlot.METADATA] = References(entries)
        return assemble(TableItem(fields), b"")[0]

    def _metadata(self, added: Mapping[str, str]) -> list[Item]:
        model = self._source.model
        contents = {
            name: model.contents(buffer)
            for name, buffer in model.metadata
            if name in _KEPT_METADATA and name not in added
        }
        contents.update((name, value.encode()) for name, value in added.items())
        edges = self._edges()
        if edges is not None:
            name = tflite_metadata.CONTROL_DEPENDENCIES
            contents[name] = tflite_metadata.encode_control_dependencies(edges)
        items: list[Item] = []
        for name, content in contents.items():
            number = Scalar("uint32", len(self._buffers))
            items.append(TableItem({MetadataSlot.NAME: Text(name.encode()), MetadataSlot.BUFFER: number}))
            self._buffers.append(TableItem({BufferSlot.DATA: Blob(content)}))
        return items

    def _edges(self) -> list[tflite_metadata.Edges] | None:
        """Return the order that the old file states between operators, in new numbers."""
        model = self._source.model
        stated = tflite_metadata.control_dependencies(model)
        if stated is None:
            return None
        result: list[tflite_metadata.Edges] = []
        for part in self._parts:
            edges = stated[part.source]
            if tflite_metadata.is_chain(edges, len(model.subgraphs[part.source].operators)):
                result.append(tuple((place, place + 1) for place in range(len(part.operators) - 1)))
                continue
            place_of = {number: place for place, number in enumerate(part.operators)}
            inside = [(a, b) for a, b in edges if a in place_of and b in place_of]
            result.append(tuple(sorted((place_of[before], place_of[after]) for before, after in inside)))
        return result

    def _subgraph_item(self, part: NewSubgraph) -> Item:
        place = {tensor: number for number, tensor in enumerate(part.tensors)}
        place[-1] = -1
        table = self._source.subgraphs[part.source]
        fields: dict[int, Scalar | Item] = {
            SubgraphSlot.TENSORS: References([self._tensor(part, tensor, place) for tensor in part.tensors]),
            SubgraphSlot.INPUTS: Numbers("int32", [place[tensor] for tensor in part.inputs]),
            SubgraphSlot.OUTPUTS: Numbers("int32", [place[tensor] for tensor in part.outputs]),
            SubgraphSlot.OPERATORS: References([self._operator(part, number, place) for number in part.operators]),
        }
        if table.place(SubgraphSlot.NAME) is not None:
            fields[SubgraphSlot.NAME] = Text(table.text(SubgraphSlot.NAME).encode())
        return copied(table, "SubGraph", fields, without=(SubgraphSlot.DEBUG_METADATA_INDEX,))

    def _tensor(self, part: NewSubgraph, tensor: int, place: Mapping[int, int]) -> Item:
        source, table = self._source, self._source.tensors[part.source][tensor]
        fields: dict[int, Scalar | Item] = {**source.copier.references(table, "Tensor")}
        fields[TensorSlot.BUFFER] = Scalar("uint32", self._buffer_of(table.number(TensorSlot.BUFFER, "uint32")))
        name = part.names.get(tensor)
        if name is not None and name != source.model.subgraphs[part.source].tensors[tensor].name:
            fields[TensorSlot.NAME] = Text(name.encode())
        details = source.details(part.source, tensor)
        if details is not None:
            kind, found = details
            quantization = table.table(TensorSlot.QUANTIZATION)
            if quantization is not None:
                fields[TensorSlot.QUANTIZATION] = source.copier.table(
                    quantization,
                    "QuantizationParameters",
                    {QuantizationSlot.DETAILS: source.copier.table(found, kind, _renumbered(kind, found, place))},
                )
        return copied(table, "Tensor", fields)

    def _buffer_of(self, old: int) -> int:
        """Return the new index of a buffer, which is added when it is met first."""
        model = self._source.model
        if old >= len(model.buffers):
            return 0
        if old not in self._buffer:
            buffer = model.buffers[old]
            table = FlatbufferTable(FlatFile(model.data), buffer.table)
            if not buffer.size and table.place(BufferSlot.DATA) is None:
                self._buffer[old] = 0
            else:
                self._buffer[old] = len(self._buffers)
                self._buffers.append(TableItem({BufferSlot.DATA: Blob(model.contents(old))}))
        return self._buffer[old]

    def _operator(self, part: NewSubgraph, number: int, place: Mapping[int, int]) -> Item:
        source, table = self._source, self._source.operators[part.source][number]
        operator = source.model.subgraphs[part.source].operators[number]
        code = table.number(OperatorSlot.OPCODE_INDEX, "uint32")
        fields: dict[int, Scalar | Item] = {
            **source.copier.references(table, "Operator"),
            OperatorSlot.OPCODE_INDEX: Scalar("uint32", self._code[code]),
            OperatorSlot.INPUTS: Numbers("int32", [place[tensor] for tensor in operator.inputs]),
            OperatorSlot.OUTPUTS: Numbers("int32", [place[tensor] for tensor in operator.outputs]),
        }
        if operator.intermediates:
            fields[OperatorSlot.INTERMEDIATES] = Numbers("int32", [place[one] for one in operator.intermediates])
        without = {OperatorSlot.DEBUG_METADATA_INDEX}
        start = table.number(OperatorSlot.LARGE_CUSTOM_OPTIONS_OFFSET, "uint64")
        if start > 1:
            size = table.number(OperatorSlot.LARGE_CUSTOM_OPTIONS_SIZE, "uint64")
            if start + size > len(source.model.data):
                raise ModelError(
                    "an operator's options reach past the file's end; the file is truncated or damaged", code="damaged"
                )
            fields[OperatorSlot.CUSTOM_OPTIONS] = Blob(source.model.data[start : start + size])
            without |= {OperatorSlot.LARGE_CUSTOM_OPTIONS_OFFSET, OperatorSlot.LARGE_CUSTOM_OPTIONS_SIZE}
        if operator.bodies:
            self._rename_bodies(operator.type, table, fields)
        return copied(table, "Operator", fields, without)

    def _rename_bodies(self, kind: str, table: FlatbufferTable, fields: dict[int, Scalar | Item]) -> None:
        """Let the options in ``fields`` name subgraphs by their new numbers."""
        slot, named = subgraph_fields(kind)
        options = table.table(slot)
        if options is None:
            return
        changed: dict[int, Scalar | Item] = {}
        for one in named:
            if one.kind is None:
                changed[one.slot] = Numbers("int32", [self._subgraph.get(old, -1) for old in options.numbers(one.slot)])
            else:
                changed[one.slot] = Scalar("int32", self._subgraph.get(options.number(one.slot, one.kind), -1))
        first = slot == OperatorSlot.BUILTIN_OPTIONS
        number = table.number(
            OperatorSlot.BUILTIN_OPTIONS_TYPE if first else OperatorSlot.BUILTIN_OPTIONS_2_TYPE, "uint8"
        )
        name = members("BuiltinOptions" if first else "BuiltinOptions2").get(number) if number else None
        if name is None:
            raise ModelError(f"the options of a {kind} are of a kind of a later schema ({number})", code="later-schema")
        fields[slot] = self._source.copier.table(options, name, changed)


def _tensor_slots(kind: str) -> tuple[int, int]:
    """Return the slots of details of that kind in which the tensors of scales and of zero points are named."""
    return field(kind, "scales").slot, field(kind, "zero_points").slot


def _renumbered(kind: str, details: FlatbufferTable, place: Mapping[int, int]) -> dict[int, Scalar | Item]:
    """Return the numbers of tensors in ``details`` in new numbers."""
    found: dict[int, Scalar | Item] = {}
    for slot in _tensor_slots(kind):
        old = details.number(slot, "int32")
        if old != place.get(old, old) or details.place(slot) is not None:
            found[slot] = Scalar("int32", place.get(old, old))
    return found
