"""From what a layer computes to its entry in the tables of the C program: the kernel, its numbers, its constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from memsched.base.errors import ModelError
from memsched.codegen.onchip.network import Map, OnChipNetwork
from memsched.graph.kernel import LARGEST_FLOAT, KernelRefusal, LayerKernel
from memsched.ops.rules import Pointwise, Resampling, Rule, Shift, Stride, WholeAxis, Window

__all__ = ["LayerCode", "layer_codes"]

_FUNCTIONS: Final = {
    "clip": "MS_CLIP", "sigmoid": "MS_SIGMOID", "tanh": "MS_TANH", "leaky_relu": "MS_LEAKY_RELU",
    "hard_sigmoid": "MS_HARD_SIGMOID", "hard_swish": "MS_HARD_SWISH", "exp": "MS_EXP", "abs": "MS_ABS",
    "neg": "MS_NEG", "sqrt": "MS_SQRT", "elu": "MS_ELU", "erf": "MS_ERF",
}  # fmt: skip
_POOLS: Final = {"largest": 0, "average": 1, "average of all": 2}


class _ArrayLengths:
    """Lengths of arrays in memsched_onchip.h.

    Attributes:
        CONSTANTS: That a layer can have.
        READS: Tensors that a layer can read.
    """

    CONSTANTS: Final = 4
    READS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class LayerCode:
    """One layer in C.

    Attributes:
        kernel: The name of the function.
        source: The file that has it.
        fields: The lines of its structure of type ``structure``: "." field "=" value.
        arrays: Further arrays, by the field that points to them: type and values.
        constants: What lies in DRAM, output channels first where they are loaded a few at a time.
    """

    kernel: str
    source: str
    structure: str
    fields: Mapping[str, str]
    arrays: Mapping[str, tuple[str, tuple[str, ...]]]
    constants: tuple[np.ndarray[Any, Any], ...] = ()


class _NoCodeError(Exception):
    """Why a layer cannot be said in C, on its way up."""


def layer_codes(network: OnChipNetwork, kernels: Sequence[LayerKernel | KernelRefusal]) -> tuple[LayerCode, ...]:
    """Return the layers of ``network`` in C.

    Raises:
        ModelError: One has no kernel; the message names it.
    """
    flattened: dict[int, tuple[int, int, int]] = {}
    found = []
    for op, kernel in enumerate(kernels):
        one = network.graph.ops[op]
        try:
            if isinstance(kernel, KernelRefusal):
                raise _NoCodeError(kernel.reason)
            found.append(_LayerWords(network, op, kernel, flattened).code())
        except _NoCodeError as error:
            raise ModelError(f"op '{one.name}' ({one.type}) cannot be emitted: {error}", code="not-emittable") from None
    for tensor in network.graph.outputs:
        if tensor in flattened:
            name = network.graph.tensors[tensor].name
            raise ModelError(
                f"output '{name}' cannot be emitted: it is a map, flattened with its channels first",
                code="not-emittable",
            )
    return tuple(found)


def number(value: float) -> str:
    """Return a float as C has it, exactly."""
    if abs(value) > LARGEST_FLOAT:
        value = LARGEST_FLOAT if value > 0 else -LARGEST_FLOAT
    return f"{float(value).hex()}f"


def _integer(value: float) -> str:
    return str(int(value))


def _shape(one: Map) -> str:
    return f"{{{one.batch}, {one.rows}, {one.columns}, {one.channels}}}"


class _LayerWords:
    """One op; ``flattened`` are tensors that hold a map of (rows, columns, channels) whose file has channels first."""

    def __init__(
        self,
        network: OnChipNetwork,
        op: int,
        kernel: LayerKernel,
        flattened: dict[int, tuple[int, int, int]],
    ) -> None:
        self._network, self._op, self._kernel, self._flattened = network, op, kernel, flattened
        self._layer, self._one = network.layers[op], network.graph.ops[op]
        self._eight = kernel.dtype == "int8"

    def code(self) -> LayerCode:
        """Return the layer in C.

        Raises:
            _NoCodeError: It cannot be said.
        """
        if len(self._layer.writes) != 1 or len(self._layer.reads) > _ArrayLengths.READS or not self._layer.reads:
            raise _NoCodeError(f"it reads {len(self._layer.reads)} tensors and makes {len(self._layer.writes)}")
        if len(self._kernel.constants) > _ArrayLengths.CONSTANTS:
            raise _NoCodeError(f"it has {len(self._kernel.constants)} constants")
        held = [tensor for tensor in self._layer.reads if tensor in self._flattened]
        if held and self._kernel.family not in {"copy", "unary", "table"} and not self._kernel.permutes:
            raise _NoCodeError("it reads a map that was flattened with its channels first")
        if held and self._kernel.family in {"unary", "table"}:
            self._flattened[self._layer.writes[0]] = self._flattened[held[0]]
        return _WORDS[self._kernel.family](self)

    @property
    def _given(self) -> Map:
        return self._network.maps[self._layer.reads[0]]

    @property
    def _made(self) -> Map:
        return self._network.maps[self._layer.writes[0]]

    def _suffix(self) -> str:
        return "i8" if self._eight else "f32"

    def _limits(self) -> dict[str, str]:
        numbers = self._kernel.numbers
        if self._eight:
            return {name: _integer(numbers[name]) for name in ("least", "most")}
        return {name: number(numbers[name]) for name in ("low", "high")}

    def _integers(self, *names: str) -> dict[str, str]:
        return {name: _integer(self._kernel.numbers[name]) for name in names}

    def _simple(self, name: str, source: str, structure: str, fields: Mapping[str, str], **arrays: Any) -> LayerCode:
        return LayerCode(
            name, f"kernels_{source}.c", f"ms_{structure}_layer", fields, arrays, tuple(self._kernel.constants)
        )

    # Windows ----------------------------------------------------------------------------------------------------------

    def _rule(self, axis: int) -> Rule | None:
        """Return how the first operand follows the output along rows (0) or columns (1); None where it has none."""
        axes = self._given.axes
        geometry = self._network.geometries.get(self._op)
        if not axes or geometry is None:
            return None
        return geometry.operands[self._one.positions[0]][axes[axis + 1]].rule

    def _window(self, axis: int) -> str:
        rule = self._rule(axis)
        if isinstance(rule, Window):
            return f"{{{rule.kernel}, {rule.stride}, {rule.dilation}, {rule.pad_before}}}"
        length = self._given.length(axis)
        if rule is None or isinstance(rule, Pointwise):
            return "{1, 1, 1, 0}"
        if isinstance(rule, WholeAxis):
            return f"{{{length}, {length}, 1, 0}}"
        raise _NoCodeError("its windows are of no known form")

    def conv(self) -> LayerCode:
        """Return sums of products."""
        given, made = self._given, self._made
        weights = self._kernel.constants[0]
        groups = int(self._kernel.numbers["groups"])
        windows = {"row": self._window(0), "column": self._window(1)}
        shape = given
        held = self._flattened.get(self._layer.reads[0])
        if self._kernel.permutes and held is not None:
            rows, columns, channels = held
            split = weights.reshape(len(weights), channels, rows, columns)
            weights = np.ascontiguousarray(np.transpose(split, (0, 2, 3, 1))).reshape(len(weights), 1, 1, -1)
        if weights.shape[1:3] == (1, 1) and given.rows * given.columns > 1 and made.rows * made.columns == 1:
            # A product with a matrix is a window as large as the map.
            weights = weights.reshape(len(weights), given.rows, given.columns, -1)
            windows = {"row": f"{{{given.rows}, 1, 1, 0}}", "column": f"{{{given.columns}, 1, 1, 0}}"}
        if given.batch * given.channels % groups or weights.shape[3] * groups != given.channels:
            raise _NoCodeError("its weights do not fit its input")
        if len(weights) != made.channels:
            raise _NoCodeError("its weights do not fit its output")
        fields = {
            "in": _shape(shape), "out": _shape(made), **windows, "groups": str(groups),
            "bias": _integer(len(self._kernel.constants) > 1), **self._limits(),
        }  # fmt: skip
        arrays: dict[str, tuple[str, tuple[str, ...]]] = {}
        if self._eight:
            fields |= self._integers("input_zero", "output_zero", "per_channel")
            arrays = {
                name: ("int32_t", tuple(map(str, self._kernel.tables[name]))) for name in ("multipliers", "shifts")
            }
        constants = (weights, *self._kernel.constants[1:])
        return LayerCode(f"ms_conv_{self._suffix()}", "kernels_conv.c", "ms_conv_layer", fields, arrays, constants)

    def pool(self) -> LayerCode:
        """Return the largest of a window, or its mean."""
        fields = {
            "in": _shape(self._given), "out": _shape(self._made), "row": self._window(0), "column": self._window(1),
            "average": str(_POOLS[self._kernel.word]), **self._limits(),
        }  # fmt: skip
        return self._simple(f"ms_pool_{self._suffix()}", "pool", "pool", fields)

    def mean(self) -> LayerCode:
        """Return the mean over the plane."""
        if self._kernel.tables.get("axes", (0, 1)) != (0, 1) or not self._given.axes:
            raise _NoCodeError("its mean is not over rows and columns")
        fields = {"in": _shape(self._given)}
        if self._eight:
            fields |= self._integers("input_zero", "output_zero", "multiplier", "shift")
        return self._simple(f"ms_mean_{self._suffix()}", "pool", "mean", fields)

    # Elements ---------------------------------------------------------------------------------------------------------

    def unary(self) -> LayerCode:
        """Return a function of each element."""
        numbers = self._kernel.numbers
        fields = {"function": _FUNCTIONS[self._kernel.word], "a": number(numbers["a"]), "b": number(numbers["b"])}
        return self._simple("ms_unary_f32", "elementwise", "unary", fields)

    def table(self) -> LayerCode:
        """Return a function of 8 bits."""
        values = tuple(map(str, self._kernel.tables["table"]))
        return self._simple("ms_table_i8", "elementwise", "unary", {}, table=("int8_t", values))

    def converted(self) -> LayerCode:
        """Return floats of 8 bits, or 8 bits of floats."""
        fields = {"scale": number(self._kernel.numbers["scale"]), **self._integers("zero")}
        return self._simple(f"ms_{self._kernel.family}", "elementwise", "unary", fields)

    def copy(self) -> LayerCode:
        """Return the same bytes, under another shape."""
        tensor, made = self._layer.reads[0], self._layer.writes[0]
        given, out = self._given, self._made
        plane = given.rows * given.columns > 1 and given.channels > 1 and given.axes[1:2] == (2,)
        shape, shape_made = (self._network.graph.tensors[one].shape for one in (tensor, made))
        held = self._flattened.get(tensor)
        if plane and shape != shape_made:
            if out.axes or given.batch > 1:
                raise _NoCodeError("it gives a map, whose channels lie last on chip, another shape")
            self._flattened[made] = (given.rows, given.columns, given.channels)
        elif not plane and out.rows * out.columns > 1 and out.channels > 1 and out.axes[1:2] == (2,):
            if held != (out.rows, out.columns, out.channels):
                raise _NoCodeError("it makes a map, whose channels lie last on chip, of other values")
        elif held is not None and not out.axes:
            self._flattened[made] = held
        return self._simple("ms_copy", "elementwise", "unary", {"element": str(given.element)})

    def binary(self) -> LayerCode:
        """Return a function of two operands."""
        numbers, fields = self._kernel.numbers, {"operation": f"MS_{self._kernel.word.upper()}"}
        operands = []
        kept: list[np.ndarray[Any, Any]] = []
        for place, tensor in enumerate(self._kernel.operands):
            parts = {"read": "-1", "constant": "-1"}
            if tensor >= 0:
                parts["read"] = str(self._layer.reads.index(tensor))
                shape = self._network.maps[tensor]
            elif self._kernel.constants[-1 - tensor].ndim == 0:
                # A single number is part of the program.
                value = self._kernel.constants[-1 - tensor].item()
                parts["integer" if self._eight else "value"] = str(value) if self._eight else number(value)
                shape = Map(1, 1, 1, 1, 4)
            else:
                parts["constant"] = str(len(kept))
                kept.append(self._kernel.constants[-1 - tensor])
                shape = self._constant_map(kept[-1])
            self._check_broadcast(shape)
            parts["shape"] = _shape(shape)
            if self._eight:
                parts["zero"] = _integer(numbers[f"zero_{place}"])
                for name in ("multiplier", "shift"):
                    parts[name] = _integer(numbers.get(f"{name}_{place}", 0))
            operands.append("{" + ", ".join(f".{name} = {value}" for name, value in parts.items()) + "}")
        fields |= {"operand": "{" + ", ".join(operands) + "}", "out": _shape(self._made), **self._limits()}
        if self._eight:
            fields |= self._integers("left_shift", "output_zero", "output_multiplier", "output_shift")
        return LayerCode(
            f"ms_binary_{self._suffix()}", "kernels_elementwise.c", "ms_binary_layer", fields, {}, tuple(kept)
        )

    def _constant_map(self, values: np.ndarray[Any, Any]) -> Map:
        made = self._made
        if values.ndim == 4 and made.axes:
            return Map(values.shape[1], values.shape[2], values.shape[3], values.shape[0], 4)
        if values.size == 1 or (made.axes and values.ndim == 1) or values.size == made.channels:
            return Map(1, 1, values.size, 1, 4)
        raise _NoCodeError("a constant is broadcast in a way that no kernel has")

    def _check_broadcast(self, one: Map) -> None:
        made = self._made
        pairs = (
            (one.batch, made.batch), (one.rows, made.rows), (one.columns, made.columns), (one.channels, made.channels),
        )  # fmt: skip
        if any(length not in {1, whole} for length, whole in pairs):
            raise _NoCodeError("an operand is broadcast in a way that no kernel has")

    def normalise(self) -> LayerCode:
        """Return batch normalisation."""
        return self._simple(
            "ms_normalise_f32", "elementwise", "normalise", {"epsilon": number(self._kernel.numbers["epsilon"])}
        )

    # Movement ---------------------------------------------------------------------------------------------------------

    def move(self) -> LayerCode:
        """Return elements from elsewhere."""
        if "order" in self._kernel.tables:
            raise _NoCodeError("it transposes")
        sources = []
        for tensor, position in zip(self._one.inputs, self._one.positions, strict=True):
            one = self._network.maps[tensor]
            begins, steps, divides = zip(*self._steps(tensor, position), strict=True)
            lists = [f".{name} = {{{', '.join(map(str, values))}}}" for name, values in
                     (("begin", begins), ("step", steps), ("divide", divides))]  # fmt: skip
            read = self._layer.reads.index(tensor)
            sources.append(f"{{.read = {read}, .shape = {_shape(one)}, {', '.join(lists)}}}")
        value = self._kernel.numbers["fill"]
        fill = np.array([value], np.int8 if self._eight else np.float32).tobytes()
        fields = {
            "source_count": str(len(sources)), "element": str(self._made.element),
            "fill": "{" + ", ".join(str(byte) for byte in fill) + "}",
        }  # fmt: skip
        return self._simple("ms_move", "move", "move", fields, sources=("ms_source", tuple(sources)))

    def _steps(self, tensor: int, position: int) -> list[tuple[int, int, int]]:
        """Return per axis where output 0 comes from, the step, and by what the place is divided."""
        geometry = self._network.geometries.get(self._op)
        if geometry is None:
            raise _NoCodeError("it is not known where its elements come from")
        maps, axes = geometry.operands[position], self._network.maps[tensor].axes
        if axes and self._made.axes:
            return [_step(maps[axis].rule) for axis in axes]
        shape = self._network.graph.tensors[tensor].shape or ()
        if axes or self._made.axes or not shape or any(length != 1 for length in shape[:-1]):
            raise _NoCodeError("it moves elements of what is no map")
        return [(0, 1, 1)] * 3 + [_step(maps[-1].rule)]

    # Over channels ----------------------------------------------------------------------------------------------------

    def softmax(self) -> LayerCode:
        """Return the softmax over channels."""
        if not self._made.axes and any(
            n != 1 for n in (self._network.graph.tensors[self._layer.writes[0]].shape or ())[:-1]
        ):
            raise _NoCodeError("there is no kernel for several rows")
        numbers = self._kernel.numbers
        fields = self._integers("multiplier", "shift", "least") if self._eight else {"beta": number(numbers["beta"])}
        return self._simple(f"ms_softmax_{self._suffix()}", "normalise", "softmax", fields)

    def lrn(self) -> LayerCode:
        """Return local response normalisation."""
        fields = {name: number(self._kernel.numbers[name]) for name in ("alpha", "beta", "bias")}
        return self._simple("ms_lrn_f32", "normalise", "lrn", {**self._integers("size"), **fields})


def _step(rule: Rule) -> tuple[int, int, int]:
    if isinstance(rule, Pointwise):
        return 0, 1, 1
    if isinstance(rule, Shift):
        return -rule.offset, 1, 1
    if isinstance(rule, Window) and rule.kernel == rule.stride == 1:
        return -rule.pad_before, 1, 1
    if isinstance(rule, Stride):
        return rule.begin, rule.step, 1
    if isinstance(rule, Resampling) and rule.rounding == "floor" and not (rule.centre or rule.back or rule.corners):
        if rule.scale.denominator == 1:
            return 0, 1, rule.scale.numerator
        if rule.scale.numerator == 1:
            return 0, rule.scale.denominator, 1
    raise _NoCodeError("it moves elements in a way that no kernel has")


_WORDS: Final[Mapping[str, Callable[[_LayerWords], LayerCode]]] = {
    "conv": _LayerWords.conv,
    "pool": _LayerWords.pool,
    "mean": _LayerWords.mean,
    "unary": _LayerWords.unary,
    "table": _LayerWords.table,
    "quantize": _LayerWords.converted,
    "dequantize": _LayerWords.converted,
    "binary": _LayerWords.binary,
    "normalise": _LayerWords.normalise,
    "move": _LayerWords.move,
    "softmax": _LayerWords.softmax,
    "lrn": _LayerWords.lrn,
    "copy": _LayerWords.copy,
}
