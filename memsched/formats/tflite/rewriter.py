"""Write a rewritten main graph as TFLite: a new subgraph in front of the old file, whose weights and options it uses.

Tensors that the rewrite does not have any more give their places to new ones: firmware allocates tensors that no
operator refers to as well. The operators of a rewritten graph are found as in ONNX (see `onnx.rewriter`): untouched
ones by name, pieces and copies by their origin, helpers by neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.base.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.formats.staging import describe
from memsched.formats.tflite import metadata as tflite_metadata
from memsched.formats.tflite.assembly import (
    Blob,
    Item,
    Numbers,
    OldObject,
    References,
    Scalar,
    TableItem,
    Text,
    assemble,
)
from memsched.formats.tflite.constants import TfliteConstants
from memsched.formats.tflite.dialect import dialect
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.loop_bodies import LoopSource, loop_subgraphs, tile_subgraph
from memsched.formats.tflite.model import FileModel, FileSubgraph
from memsched.formats.tflite.open_sizes import first_stated_axis, open_axes
from memsched.formats.tflite.operator_codes import OperatorCodes
from memsched.formats.tflite.options import (
    ACTIVATION,
    CHANGEABLE,
    CONSTANT_INPUTS,
    STRIDED_SLICE_MASKS,
    with_changes,
    with_masks,
)
from memsched.formats.tflite.package import field, number_of
from memsched.formats.tflite.reader import TfliteNative
from memsched.formats.tflite.schema import (
    BufferSlot,
    ModelSlot,
    OperatorSlot,
    QuantizationSlot,
    SubgraphSlot,
    TensorSlot,
)
from memsched.formats.tflite.tables import copied, moved_root, new_operator, new_tensor, options_fields
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.loop import Loop
from memsched.graph.model import AttributeValue, Graph, Op
from memsched.ops.ranges import constant_parts
from memsched.ops.table import SHAPED

__all__ = ["GraphRewriter", "dialect", "serialize"]


def serialize(module: Module, graph: Graph, order: Sequence[int], *, control_dependencies: bool = False) -> bytes:
    """Return the file with its main subgraph rewritten to ``graph``, operators in ``order``.

    Metadata that speaks of operators or addresses of the old subgraph is left out.

    Args:
        graph: Ops as `memsched.graph.model.Op` describes them; tensors are found by name.
        order: Indices of the graph's ops.
        control_dependencies: Write ``model_control_dependencies``, so that delegates keep the order.

    Raises:
        InternalError: The graph does not fit the module.
        ModelError: The file is of a later schema, or too large.
    """
    native: TfliteNative = module.native
    if sorted(order) != list(range(len(graph.ops))):
        raise InternalError("the order of a rewritten graph does not name each of its ops once", code="op-count")
    try:
        data = GraphRewriter(module, native, graph).file(order)
        if control_dependencies:
            data = tflite_metadata.with_order(data)
    except ModelError as error:
        raise error.at(f"{describe(module.path)} cannot be written") from None
    return data


class GraphRewriter:
    """Makes the file of a module whose main graph is rewritten to another."""

    def __init__(self, module: Module, native: TfliteNative, graph: Graph) -> None:
        self._model: FileModel = native.model
        self._graph = graph
        self._given = module.graphs[0]
        self._steps = native.mappings[0].operators
        self._subgraph: FileSubgraph = native.model.subgraphs[0]
        self._root: FlatbufferTable = FlatFile(native.model.data).root()
        self._table = self._root.tables(ModelSlot.SUBGRAPHS)[0]
        self._op = {op.name: number for number, op in enumerate(self._given.ops)}
        self._tensors: list[Item] = [OldObject(table.position) for table in self._table.tables(SubgraphSlot.TENSORS)]
        self._tensor_tables = self._table.tables(SubgraphSlot.TENSORS)
        self._operator_tables = self._table.tables(SubgraphSlot.OPERATORS)
        self._codes = OperatorCodes(self._root)
        self._index, self._free = self._existing(native.mappings[0].tensors)
        # Inputs and outputs of the subgraph that are other tensors now, old numbers to new ones.
        self._border = self._changed_border(native.mappings[0].tensors)
        self._constants = TfliteConstants(self._model, self._subgraph, self._tensor_tables, self._add_tensor)
        self._bodies: list[TableItem] = []
        # Per output of a group the body that its tiles share.
        self._shared: dict[str, int] = {}
        # Old numbers of tensors to new ones, where tensors were left out.
        self._moved: dict[int, int] = {}
        self._subgraph_count = len(native.model.subgraphs)
        names = [tensor.name for tensor in self._given.tensors]
        self._all = dict(zip(names, native.mappings[0].tensors, strict=True))
        self._loop_source = LoopSource(
            native.model,
            self._subgraph,
            self._tensor_tables,
            self._operator_tables,
            self._all,
            {op.name: self._steps[number] for number, op in enumerate(self._given.ops)},
            self._codes.number,
            self._constants.buffers,
        )
        # Per index of a new tensor the tensor of the file whose type and quantisation it has.
        self._like: dict[int, int] = {}

    def _existing(self, mapping: Sequence[int]) -> tuple[dict[str, int], list[int]]:
        """Return the file's index of every tensor that stays, and the indices of those that do not."""
        left = {tensor.name for tensor in self._graph.tensors}
        names = zip((tensor.name for tensor in self._given.tensors), mapping, strict=True)
        index = dict(names)
        free = sorted(number for name, number in index.items() if name not in left)
        return {name: number for name, number in index.items() if name in left}, free

    def _changed_border(self, mapping: Sequence[int]) -> dict[int, int]:
        ends = (self._given.inputs, self._graph.inputs), (self._given.outputs, self._graph.outputs)
        return {
            mapping[old]: self._index[self._graph.tensors[new].name]
            for before, after in ends
            for old, new in zip(before, after, strict=True)
            if self._given.tensors[old].name != self._graph.tensors[new].name
        }

    def file(self, order: Sequence[int]) -> bytes:
        """Return the bytes of the rewritten file."""
        operators: list[Item] = [*self._constant_operators()]
        operators += [self._operator(self._graph.ops[number]) for number in order]
        self._close_sizes()
        self._bury_the_rest()
        # The constants of pieces were added on the way, so the lists are complete only now.
        subgraph = copied(self._table, "SubGraph", self._lists(operators))
        others: list[Item] = [OldObject(table.position) for table in self._root.tables(ModelSlot.SUBGRAPHS)[1:]]
        buffers = [OldObject(buffer.table) for buffer in self._model.buffers]
        new_buffers = [TableItem({BufferSlot.DATA: Blob(data)}) for data in self._constants.buffers]
        root = copied(
            self._root,
            "Model",
            {
                ModelSlot.OPERATOR_CODES: References(self._codes.items),
                ModelSlot.SUBGRAPHS: References([subgraph, *others, *self._bodies]),
                ModelSlot.BUFFERS: References([*buffers, *new_buffers]),
                **self._metadata(),
                **self._signatures(),
            },
        )
        front, shift = assemble(root, self._model.data)
        return moved_root(self._model, front, shift)

    def _lists(self, operators: Sequence[Item]) -> dict[int, Item]:
        """Return the new subgraph's lists, without tensors that it does not use now: runtimes keep bytes for each."""
        ends = [self._border.get(one, one) for one in (*self._subgraph.inputs, *self._subgraph.outputs)]
        self._moved = self._new_numbers(operators, ends)
        if not self._moved:
            return {SubgraphSlot.TENSORS: References(self._tensors), SubgraphSlot.OPERATORS: References(operators)}
        count = len(self._subgraph.inputs)
        moved = [self._renumbered(item) if isinstance(item, TableItem) else item for item in operators]
        return {
            SubgraphSlot.TENSORS: References([self._tensors[old] for old in self._moved]),
            SubgraphSlot.OPERATORS: References(moved),
            SubgraphSlot.INPUTS: self._numbers(ends[:count]),
            SubgraphSlot.OUTPUTS: self._numbers(ends[count:]),
        }

    def _new_numbers(self, operators: Sequence[Item], ends: Sequence[int]) -> dict[int, int]:
        """Return the new number of each tensor that stays, by its old one; empty where nothing is to be changed."""
        if not (self._bodies or self._border):
            return {}
        named = [item for item in operators if isinstance(item, TableItem)]
        movable = len(named) == len(operators) and not any(OperatorSlot.INTERMEDIATES in item.fields for item in named)
        if not movable or self._has_details():
            return {number: number for number in range(len(self._tensors))} if self._border else {}
        used = {*ends, *(number for number, tensor in enumerate(self._subgraph.tensors) if tensor.variable)}
        for item in named:
            for slot in (OperatorSlot.INPUTS, OperatorSlot.OUTPUTS):
                numbers = item.fields.get(slot)
                used.update(int(one) for one in numbers.values) if isinstance(numbers, Numbers) else None
        return {old: new for new, old in enumerate(sorted(used - {-1}))}

    def _has_details(self) -> bool:
        """Whether the quantisation of a tensor names other tensors."""
        quantizations = (table.table(TensorSlot.QUANTIZATION) for table in self._tensor_tables)
        return any(one is not None and one.place(QuantizationSlot.DETAILS) is not None for one in quantizations)

    def _renumbered(self, item: TableItem) -> TableItem:
        changed = {
            slot: self._numbers([int(one) for one in numbers.values])
            for slot in (OperatorSlot.INPUTS, OperatorSlot.OUTPUTS)
            if isinstance(numbers := item.fields.get(slot), Numbers)
        }
        return TableItem({**item.fields, **changed})

    def _numbers(self, tensors: Sequence[int]) -> Numbers:
        return Numbers("int32", [self._moved.get(one, -1) for one in tensors])

    def _signatures(self) -> dict[int, Item]:
        """Return the signatures of the file, which name tensors by their numbers, where these have changed."""
        tables = self._root.tables(ModelSlot.SIGNATURE_DEFS)
        if not self._moved or not tables:
            return {}
        which, number = field("SignatureDef", "subgraph_index"), field("TensorMap", "tensor_index")
        items: list[Item] = []
        for table in tables:
            if table.number(which.slot, "uint32"):
                items.append(OldObject(table.position))
                continue
            lists = {
                slot: References(
                    [
                        copied(one, "TensorMap", {number.slot: Scalar("uint32", self._moved[now])})
                        for one in table.tables(slot)
                        if (now := self._border.get(old := one.number(number.slot, "uint32"), old)) in self._moved
                    ]
                )
                for slot in (field("SignatureDef", name).slot for name in ("inputs", "outputs"))
            }
            items.append(copied(table, "SignatureDef", lists))
        return {ModelSlot.SIGNATURE_DEFS: References(items)}

    def _metadata(self) -> dict[int, Item]:
        stale = {tflite_metadata.OFFLINE_PLAN, tflite_metadata.CONTROL_DEPENDENCIES}
        tables = self._root.tables(ModelSlot.METADATA)
        names = [name for name, _ in self._model.metadata]
        if not stale & set(names):
            return {}
        kept = [OldObject(table.position) for table, name in zip(tables, names, strict=True) if name not in stale]
        return {ModelSlot.METADATA: References(kept)}

    def _constant_operators(self) -> list[Item]:
        """Return the operators that compute constants: they are no ops of the graph, and any piece may need them."""
        steps = set(self._steps)
        found: list[Item] = []
        for number, table in enumerate(self._operator_tables):
            if number in steps:
                continue
            operator = self._subgraph.operators[number]
            lists = {
                OperatorSlot.INPUTS: Numbers("int32", operator.inputs),
                OperatorSlot.OUTPUTS: Numbers("int32", operator.outputs),
            }
            # Copies can be renumbered.
            found.append(copied(table, "Operator", lists) if self._border else OldObject(table.position))
        return found

    def _operator(self, op: Op) -> Item:
        source = op.origin if op.origin is not None else op.name
        if source in self._op and (op.origin is not None or op.type == self._given.ops[self._op[source]].type):
            return self._copy(op, self._op[source])
        if op.origin is not None:
            raise InternalError(
                f"op '{op.name}' is made from '{op.origin}', which the model does not hold", code="unknown-op"
            )
        return self._helper(op)

    def _copy(self, op: Op, number: int) -> Item:
        origin, operator = self._given.ops[number], self._subgraph.operators[self._steps[number]]
        table = self._operator_tables[self._steps[number]]
        if (op.type, op.positions) != (origin.type, origin.positions):
            raise InternalError(f"op '{op.name}' is no piece of '{origin.name}'", code="no-piece")
        outputs = list(operator.outputs)
        places = [
            place for place, tensor in enumerate(outputs) if tensor >= 0 and not self._subgraph.tensors[tensor].variable
        ]
        for place, made in zip(places, op.outputs, strict=True):
            outputs[place] = self._place(made, like=outputs[place])
        inputs = list(operator.inputs)
        for place, read in zip(op.positions, op.inputs, strict=True):
            inputs[place] = self._read(op, read)
        changes: dict[str, str | int] = {}
        for name in [*origin.attributes, *(key for key in op.attributes if key not in origin.attributes)]:
            value = op.attributes.get(name)
            if value != origin.attributes.get(name) and not name.startswith(CONSTANT_SHAPE):
                self._change(op, name, value, inputs, changes)
        fields = _with_options(op, table, changes)
        whole = self._given.tensors[origin.outputs[0]].shape or () if origin.outputs else ()
        if op.region is not None:
            parts = constant_parts(self._given, number, op.region)
            self._constants.cut(op, operator, inputs, parts)
        if op.terms is not None:
            self._constants.cut_terms(op, inputs)
        shape = self._graph.tensors[op.outputs[0]].shape or () if op.outputs else ()
        if SHAPED.get(op.type) == 1 and shape != whole:
            # An input for the shape comes before what a RESHAPE's options say of it.
            inputs[1:] = [self._constants.integers(shape, (len(shape),))]
        fields[OperatorSlot.INPUTS] = Numbers("int32", inputs)
        fields[OperatorSlot.OUTPUTS] = Numbers("int32", outputs)
        return copied(table, "Operator", fields)

    def _change(
        self, op: Op, name: str, value: AttributeValue | None, inputs: list[int], changes: dict[str, str | int]
    ) -> None:
        """Give a piece an attribute that its origin does not have: one of its options, or a small constant input."""
        places = dict(CONSTANT_INPUTS.get(op.type, ()))
        may_change = op.terms is not None if name == ACTIVATION else name in CHANGEABLE
        if (may_change or (name in STRIDED_SLICE_MASKS and op.type == "STRIDED_SLICE")) and isinstance(
            value, str | int
        ):
            changes[name] = value
        elif name in places and isinstance(value, tuple):
            inputs[places[name]] = self._constants.like(inputs[places[name]], value)
        else:
            raise InternalError(
                f"op '{op.name}': attribute '{name}' cannot be changed to {value}", code="attribute-unchangeable"
            )

    def _helper(self, op: Op) -> Item:
        """Return an operator that the file does not have: a slice, a concatenation or a pad."""
        if not self._codes.known(op.type):
            raise InternalError(f"op '{op.name}' of type {op.type} cannot be added", code="bad-helper")
        if op.loop is not None:
            return self._while(op, op.loop) if op.loop.tile is None else self._if(op, op.loop, op.loop.tile)
        inputs = [self._read(op, tensor) for tensor in op.inputs]
        made = self._place(op.outputs[0], like=self._like.get(inputs[0], inputs[0]))
        fields: dict[int, Scalar | Item] = {
            OperatorSlot.OPCODE_INDEX: Scalar(
                "uint32", self._codes.number(op.type, self._graph.tensors[op.inputs[0]].dtype)
            ),
            OperatorSlot.OUTPUTS: Numbers("int32", [made]),
        }
        if op.type == "CONCATENATION":
            axis = op.attributes["axis"]
            if not isinstance(axis, int):
                raise InternalError(f"op '{op.name}' has no axis", code="bad-helper")
            stated = TableItem({field("ConcatenationOptions", "axis").slot: Scalar("int32", axis)})
            fields |= options_fields("ConcatenationOptions", stated)
            inputs = self._constants.around(op, inputs, self._like.get(inputs[0], inputs[0]))
        if op.type == "ADD":
            slot, activation = field("AddOptions", ACTIVATION).slot, str(op.attributes[ACTIVATION])
            said = Scalar("int8", number_of("ActivationFunctionType", activation))
            fields |= options_fields("AddOptions", TableItem({slot: said}))
        if op.type == "STRIDED_SLICE":
            fields |= options_fields("StridedSliceOptions", with_masks(None, op.attributes))
        for name, _ in CONSTANT_INPUTS.get(op.type, ()):
            value = op.attributes[name]
            if not isinstance(value, tuple):
                raise InternalError(f"op '{op.name}' has no {name}", code="bad-helper")
            rank = len(self._graph.tensors[op.inputs[0]].shape or ())
            inputs.append(self._constants.integers(value, (rank, 2) if name == "paddings" else (rank,)))
        if op.type == "RESHAPE":
            # Stated in the options: a constant would be one more tensor.
            shape = Numbers("int32", self._graph.tensors[op.outputs[0]].shape or ())
            fields |= options_fields("ReshapeOptions", TableItem({field("ReshapeOptions", "new_shape").slot: shape}))
        fields[OperatorSlot.INPUTS] = Numbers("int32", inputs)
        return TableItem(fields)

    def _while(self, op: Op, loop: Loop) -> Item:
        """Return the operator of a loop, and add its two subgraphs."""
        read = [self._read(op, tensor) for tensor in op.inputs]
        counter, *others = op.outputs
        alike = zip(others, (*loop.outputs, *loop.inputs), strict=True)
        made = [
            self._number(counter),
            *(self._place(one, like=self._all[loop.names[tensor]]) for one, tensor in alike),
        ]
        shape = self._graph.tensors[op.inputs[len(loop.outputs)]].shape or ()
        first = self._subgraph_count + len(self._bodies)
        self._bodies += loop_subgraphs(self._loop_source, loop, shape, loop.names[loop.output])
        condition, body = (field("WhileOptions", name).slot for name in ("cond_subgraph_index", "body_subgraph_index"))
        code, inputs = self._codes.number(op.type, "int32"), [self._constants.integers((0,), (1,)), *read]
        options = TableItem({condition: Scalar("int32", first), body: Scalar("int32", first + 1)})
        return new_operator(code, inputs, made, ("WhileOptions", options))

    def _if(self, op: Op, loop: Loop, tile: int) -> Item:
        """Return the operator of one tile, and add the body that all tiles share."""
        name, shape = loop.names[loop.output], self._graph.tensors[op.inputs[0]].shape or ()
        if name not in self._shared:
            self._shared[name] = self._subgraph_count + len(self._bodies)
            self._bodies.append(tile_subgraph(self._loop_source, loop, shape, name))
        counter = self._constants.integers((tile * len(shape),), (1,))
        inputs = [self._constants.truth(), counter, *(self._read(op, tensor) for tensor in op.inputs)]
        bodies = (field("IfOptions", name).slot for name in ("then_subgraph_index", "else_subgraph_index"))
        code, made = self._codes.number(op.type, "bool"), self._place(op.outputs[0], like=self._all[name])
        options = TableItem({slot: Scalar("int32", self._shared[name]) for slot in bodies})
        return new_operator(code, inputs, [made], ("IfOptions", options))

    def _number(self, tensor: int) -> int:
        """Add a tensor of numbers that are not quantised."""
        value = self._graph.tensors[tensor]
        self._index[value.name] = self._add_tensor(new_tensor(value.dtype, value.shape or (), value.name))
        return self._index[value.name]

    def _read(self, op: Op, tensor: int) -> int:
        name = self._graph.tensors[tensor].name
        if name not in self._index:
            raise InternalError(f"op '{op.name}' reads '{name}', which nothing made before it", code="read-unmade")
        return self._index[name]

    def _place(self, tensor: int, like: int) -> int:
        """Return the file's index of a tensor that an operator makes.

        Args:
            like: The tensor of the given file whose type and quantisation a new one has.
        """
        value = self._graph.tensors[tensor]
        if value.name not in self._index:
            without = {TensorSlot.IS_VARIABLE, TensorSlot.SPARSITY, TensorSlot.SHAPE_SIGNATURE}
            if self._subgraph.tensors[like].shape == value.shape:
                # SLICE makes no other size than that of a tensor whose signature is closed.
                without.remove(TensorSlot.SHAPE_SIGNATURE)
            item = copied(
                self._tensor_tables[like],
                "Tensor",
                {
                    TensorSlot.SHAPE: Numbers("int32", value.shape or ()),
                    TensorSlot.BUFFER: Scalar("uint32", 0),
                    TensorSlot.NAME: Text(value.name.encode()),
                },
                without,
            )
            self._index[value.name] = made = self._add_tensor(item)
            self._like[made] = like
        return self._index[value.name]

    def _add_tensor(self, item: Item) -> int:
        if self._free:
            index = self._free.pop(0)
            self._tensors[index] = item
            return index
        self._tensors.append(item)
        return len(self._tensors) - 1

    def _close_sizes(self) -> None:
        """Close the signatures of inputs if the graph holds for their stated sizes only, so that callers can see it."""
        first = first_stated_axis(self._graph, self._given)
        if first is None:
            return
        for number, axes in zip(self._subgraph.inputs, open_axes(self._model), strict=True):
            if axes and axes[-1] >= first:
                place = self._border.get(number, number)
                self._tensors[place] = copied(self._tensor_tables[place], "Tensor", {}, (TensorSlot.SHAPE_SIGNATURE,))

    def _bury_the_rest(self) -> None:
        """Let tensors that are left over be a constant, which no runtime allocates."""
        constant = next((index for index, tensor in enumerate(self._subgraph.tensors) if tensor.has_data), None)
        for index in self._free:
            if constant is not None:
                self._tensors[index] = self._tensors[constant]


def _with_options(op: Op, table: FlatbufferTable, changes: Mapping[str, str | int]) -> dict[int, Scalar | Item]:
    """Return a piece's options with what is not as in its origin; nothing if all is."""
    options = table.table(OperatorSlot.BUILTIN_OPTIONS)
    if not changes:
        return {}
    if op.type == "STRIDED_SLICE":
        return {OperatorSlot.BUILTIN_OPTIONS: with_masks(options, op.attributes)}
    if options is None:
        raise InternalError(f"op '{op.name}' has no options to change", code="attribute-unchangeable")
    return {OperatorSlot.BUILTIN_OPTIONS: with_changes(op.type, options, changes)}
