"""A planned network as two files of C99, ``model.h`` and ``model.c``: tables of layers, the kernels that they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from memsched import __version__
from memsched.base.templates import comment, fill
from memsched.codegen.streaming.layers import INPUT, StreamLayer
from memsched.codegen.streaming.plan import PlannedSegment, StreamPlan
from memsched.codegen.streaming.segment import StreamSegment

__all__ = ["StreamCode", "ram_bytes", "stream_code"]

_BYTE, _SHORT = (1 << 8) - 1, (1 << 16) - 1
_WORD: Final = 4
"""Bytes of a pointer on a processor of 32 bits."""

_BINARY: Final = {"add": "ADD", "mul": "MUL", "sub": "SUB"}
_BINARY_KINDS: Final = tuple(sorted((*_BINARY.values(), "FROM")))
"""A kernel that takes two pixels asks for the kind. FROM subtracts the first operand from the second."""

_SUPPORT: Final = {
    "conv": ("window", "products"), "depthwise": ("window",), "average": ("window", "sums_of_window"),
    "largest": ("window",), "mean": ("window", "sums_of_window"), "sum": ("sums",), "dense": ("products", "sums"),
}  # fmt: skip
"""What kernels need beside the core."""

_ORDER: Final = ("window", "products", "sums_of_window", "sums")

_CALLS: Final = {
    "conv": "conv(l, s, from, to)",
    "depthwise": "depthwise(l, s, from, to)",
    "average": "average(l, s, from, to)",
    "largest": "largest(l, s, from, to)",
    "mean": "mean(l, s, from, to)",
    "table": "table(l, from + s->slot * l->channels, to)",
    "copy": "copy(l, s, from, to)",
    "softmax": "softmax(l, from + s->slot * l->channels, to)",
    "sum": "sum(l, s, from + s->slot * l->channels, to, write_at(caller, l->other_space, l->other_from))",
    "dense": "dense(l, s, from + s->slot * l->channels, to, write_at(caller, l->other_space, l->other_from))",
    "join": "join(l, from + s->slot * l->channels, other_of(caller, l, s), to)",
    "binary": "binary(l, from + s->slot * l->channels, other_of(caller, l, s), to)",
}


@dataclass(frozen=True, slots=True)
class StreamCode:
    """The files, and bytes that they take.

    Attributes:
        files: Contents by name.
        state: Of RAM beside the arena.
        flash: Of constants and tables.
    """

    files: Mapping[str, bytes]
    state: int
    flash: int


def stream_code(plan: StreamPlan, model: str) -> StreamCode:
    """Return a plan's files; ``model`` is the name of the model's file, for comments."""
    return _Writer(plan, model).code()


def ram_bytes(arena: int, state: int) -> int:
    """Return what an arena and a state take of RAM."""
    return _up(max(1, arena), _WORD) + state


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


@dataclass
class _Constants:
    """Arrays of constants, by what they hold: equal ones are written once."""

    lines: list[str] = field(default_factory=list)
    size: int = 0
    names: dict[tuple[str, bytes], str] = field(default_factory=dict)

    def name(self, kind: str, values: Any, hint: str) -> str:
        """Return the name of an array of such values of a C type."""
        array = np.asarray(values).reshape(-1).astype(np.dtype(kind.removesuffix("_t")))
        key = (kind, array.tobytes())
        if key not in self.names:
            self.names[key] = f"{hint}_{len(self.names)}"
            numbers = ",".join(str(one) for one in array.tolist())
            self.lines.append(f"static const {kind} {self.names[key]}[{array.size}] = {{{numbers}}};")
            self.size += array.nbytes
        return self.names[key]


class _Writer:
    def __init__(self, plan: StreamPlan, model: str) -> None:
        self._plan, self._network, self._model = plan, plan.network, comment(model)
        self._constants = _Constants()
        numbers = [number for one in self._network.maps for number in (one.rows, one.columns)]
        numbers += [number for one in self._network.layers for number in (*one.steps, *one.plane)]
        counts = [one.pixels + one.late for one in self._network.maps] + [one.count for one in self._network.layers]
        self._place = "uint8_t" if max(numbers) <= _BYTE else _wide(max(numbers))
        self._pixel = _wide(max(counts))

    def code(self) -> StreamCode:
        """Return the files."""
        rows = [line for place, planned in enumerate(self._plan.segments) for line in self._segment(place, planned)]
        kinds = sorted({self._kind(one) for one in self._network.layers})
        state = self._state_bytes()
        flash = self._constants.size + _LAYER_BYTES * len(self._network.layers)
        values = self._values(state, flash)
        header = _text("model.h", **values, interface=_text(f"interface_{self._plan.given}.h", **values).strip())
        source = self._source(values, rows, kinds)
        return StreamCode({"model.h": header.encode(), "model.c": source.encode()}, state, flash)

    def _state_bytes(self) -> int:
        width = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4}
        align = max(width[self._pixel], width[self._place])
        one = _up(3 * width[self._pixel] + 2 * width[self._place], align)
        # Between rows the caller's outputs are kept, and how many pixels were pushed.
        kept = _WORD * (2 + len(self._network.outputs)) if self._plan.given == "rows" else 0
        return _up(one * self._longest(), _WORD) + kept

    def _longest(self) -> int:
        return max(len(one.segment.layers) for one in self._plan.segments)

    def _values(self, state: int, flash: int) -> dict[str, str | int]:
        given = self._network.maps[INPUT]
        outputs = [self._network.maps[one] for one in self._network.outputs]
        first = self._plan.segments[0]
        names = [f"out{number}" if number else "out" for number in range(len(outputs))]
        return {
            "version": comment(__version__),
            "model": self._model,
            "arena": self._plan.arena,
            "arena_bytes": max(1, self._plan.arena),
            "ram": ram_bytes(self._plan.arena, state),
            "state": state,
            "flash": flash,
            "macs": self._network.macs,
            "input_bytes": given.size,
            "input_rows": given.rows,
            "row_bytes": given.columns * given.channels,
            "input_shape": f"[{given.rows}][{given.columns}][{given.channels}]: {comment(given.name)}",
            "output_sizes": "\n".join(
                f"#define MODEL_OUTPUT{number or ''}_BYTES {one.size}u /* [{one.rows}][{one.columns}][{one.channels}]: "
                f"{comment(one.name)} */"
                for number, one in enumerate(outputs)
            ),
            "scales": self._scales(),
            "output_parameters": ", ".join(f"int8_t *{name}" for name in names),
            "output_values": ", ".join(names),
            "outputs": len(outputs),
            "place": self._place,
            "pixel": self._pixel,
            "longest": self._longest(),
            "segments": len(self._plan.segments),
            "input_place": first.place if first.place is not None else (first.address(INPUT) or 0),
            "input_pixels": given.pixels,
            "input_columns": given.columns,
            "input_channels": given.channels,
            "input_ring": first.segment.rings.get(INPUT, given.pixels),
            "rows_of_window": max((one.window[0].kernel for one in self._network.layers), default=1),
        }

    def _scales(self) -> str:
        """Return the scales of floats at the model's border, which the caller quantizes."""
        names = {INPUT: "INPUT"}
        names |= {one: f"OUTPUT{number or ''}" for number, one in enumerate(self._network.outputs)}
        return "\n".join(
            f"#define MODEL_{names[one]}_SCALE {scale!r}f /* a value is SCALE * (byte - ZERO) */\n"
            f"#define MODEL_{names[one]}_ZERO ({zero})"
            for one, (scale, zero) in sorted(self._network.scales.items())
            if one in names
        )

    def _source(self, values: Mapping[str, str | int], rows: Sequence[str], kinds: Sequence[str]) -> str:
        kernels: dict[str, list[str]] = {}
        for kind in kinds:
            kernels.setdefault(_kernel(kind), []).append(kind)
        declared = dict.fromkeys([*kinds, *(_BINARY_KINDS if "binary" in kernels else ())])
        support = {name for one in kernels for name in _SUPPORT.get(one, ())}
        parts = [_text("model.c", **values, kinds=", ".join(declared)), _text("core.c")]
        parts += [_text(f"{name}.c") for name in _ORDER if name in support]
        parts += [_text(f"kernel_{name}.c") for name in kernels]
        parts += ["\n", *(f"{line}\n" for line in self._constants.lines), "\nstatic const layer_t layers[] = {\n"]
        parts += [f"{line}\n" for line in rows]
        bounds = ", ".join(
            f"{{{one.segment.layers[0]}, {one.segment.layers[-1]}, {self._reader(one.segment, one.segment.outside)}}}"
            for one in self._plan.segments
        )
        parts += ["};\n\n", f"static const segment_t segments[] = {{{bounds}}};\n", self._step(kernels), _text("run.c")]
        parts += [_text(f"interface_{self._plan.given}.c", **values)]
        return "".join(parts)

    def _step(self, kernels: Mapping[str, Sequence[str]]) -> str:
        cases = []
        for kernel in sorted(kernels, key="binary".__eq__):
            labels = "".join(f"    case {kind}:\n" for kind in kernels[kernel])
            cases.append(f"{labels}        {_CALLS[kernel]};\n        break;")
        two = not {"binary", "join"}.isdisjoint(kernels)
        return _text("step.c", cases="\n".join(cases), other=_text("other.c") if two else "")

    # Layers ----------------------------------------------------------------------------------------------------------

    def _segment(self, place: int, planned: PlannedSegment) -> Iterator[str]:
        names = [self._network.layers[one].name for one in (planned.segment.layers[0], planned.segment.layers[-1])]
        used = planned.segment.total
        yield f"    /* Segment {place}: {comment(names[0])} to {comment(names[1])}, {used} bytes beside its input. */"
        for layer in planned.segment.layers:
            yield from self._layer(planned, layer)

    def _reader(self, segment: StreamSegment, given: int) -> int:
        """Return the last layer of a segment that waits for a map, counted from the first; at least the map's own."""
        first = segment.layers[0]
        waiting = [layer for layer in segment.layers if self._waits(layer, given)]
        return max([0, given - 1 - first, *(layer - first for layer in waiting)])

    def _waits(self, layer: int, given: int) -> bool:
        one = self._network.layers[layer]
        return given in one.sources or one.after == given - 1

    def _kind(self, one: StreamLayer) -> str:
        if one.kind == "binary":
            word = _BINARY[one.kernel.word]
            return "FROM" if word == "SUB" and one.kernel.operands[0] < 0 else word
        return one.kind.upper()

    def _layer(self, planned: PlannedSegment, layer: int) -> Iterator[str]:
        one, made = self._network.layers[layer], self._network.maps[layer + 1]
        segment = planned.segment
        rows, columns = one.window
        fields: dict[str, Any] = {
            "kind": self._kind(one),
            "kernel_y": rows.kernel, "kernel_x": columns.kernel, "stride_y": rows.stride, "stride_x": columns.stride,
            "dilation_y": rows.dilation, "dilation_x": columns.dilation, "divide_y": rows.divide,
            "divide_x": columns.divide, "top": rows.before, "left": columns.before,
            "plane_y": one.plane[0], "plane_x": one.plane[1], "steps_y": one.steps[0], "steps_x": one.steps[1],
            "made": made.channels, "after": "NONE" if one.after is None or one.after not in segment.layers
            else one.after - segment.layers[0], "reader": self._reader(segment, layer + 1),
        }  # fmt: skip
        fields |= self._read(planned, layer, 0)
        fields |= self._read(planned, layer, 1) if len(one.sources) > 1 else {"other": "NONE", "other_ring": 1}
        fields |= self._written(planned, layer)
        fields |= self._numbers(one, layer)
        ring = f", ring of {segment.rings[layer + 1]}" if segment.rings[layer + 1] < made.pixels else ""
        shape = f"[{made.rows}][{made.columns}][{made.channels}]"
        yield f"    /* {comment(one.name)}: {shape}{ring} */"
        yield "    {" + ", ".join(f".{name} = {value}" for name, value in fields.items() if value != 0) + "},"

    def _read(self, planned: PlannedSegment, layer: int, source: int) -> dict[str, Any]:
        one, segment = self._network.layers[layer], planned.segment
        given = one.sources[source]
        inside = given > segment.layers[0]
        name: Any = given - 1 - segment.layers[0] if inside else "PUSHED" if segment.pushed else "COMPLETE"
        space, address = self._place_of(planned, given)
        ring = segment.rings.get(given, self._network.maps[given].pixels)
        channels, late = self._network.maps[given].channels, self._network.maps[given].late if inside else 0
        if source:
            return {
                "other": name, "other_space": space, "other_from": address, "other_ring": ring,
                "other_channels": channels, "other_late": late,
                "other_step": int(self._network.maps[given].pixels == one.count),
            }  # fmt: skip
        return {
            "source": name, "from_space": space, "from": address, "ring": ring, "channels": channels, "late": late
        }  # fmt: skip

    def _place_of(self, planned: PlannedSegment, one: int) -> tuple[str, int]:
        if one in self._network.outputs:
            return f"IN_OUTPUT + {self._network.outputs.index(one)}", 0
        address = planned.address(one)
        return ("IN_INPUT", 0) if address is None else ("IN_ARENA", address)

    def _written(self, planned: PlannedSegment, layer: int) -> dict[str, Any]:
        one, made = self._network.layers[layer], self._network.maps[layer + 1]
        space, address = self._place_of(planned, layer + 1)
        if not one.adds_up:
            ring = planned.segment.rings[layer + 1]
            return {"to_space": space, "to": address, "to_ring": ring, "to_step": int(made.pixels > 1)}
        sums = planned.address(layer + 1)
        return {
            "to_space": "IN_ARENA", "to": sums, "to_ring": 1, "other_space": space, "other_from": address,
            "other_ring": self._network.sum_width(layer),
        }  # fmt: skip

    def _numbers(self, one: StreamLayer, layer: int) -> dict[str, Any]:
        numbers, constants = one.kernel.numbers, self._constants
        found: dict[str, Any] = {"low": -_HALF, "high": _HALF - 1}
        if "least" in numbers and one.kind != "softmax":
            found |= {"low": int(numbers["least"]), "high": int(numbers["most"])}
        found["to_zero"] = int(numbers.get("output_zero", 0))
        make = _NUMBERS.get(one.kind)
        return found | (make(one, constants, layer) if make is not None else {})


_HALF: Final = 128
_LAYER_BYTES: Final = 88
"""The record of a layer on a processor of 32 bits, at most."""


def _products(one: StreamLayer, constants: _Constants, layer: int) -> dict[str, Any]:
    weights = one.kernel.constants[0]
    if one.kind == "depthwise":
        weights = np.transpose(weights[..., 0], (1, 2, 0))
    tables, made = one.kernel.tables, len(one.kernel.constants[0])
    found = {
        "weights": constants.name("int8_t", weights, f"weights{layer}"),
        "multipliers": constants.name("int32_t", _per_channel(tables["multipliers"], made), f"multipliers{layer}"),
        "shifts": constants.name("int8_t", _per_channel(tables["shifts"], made), f"shifts{layer}"),
        "zero": int(one.kernel.numbers["input_zero"]),
    }
    if len(one.kernel.constants) > 1:
        found["bias"] = constants.name("int32_t", one.kernel.constants[1], f"bias{layer}")
    return found


def _kernel(kind: str) -> str:
    return "binary" if kind in _BINARY_KINDS else kind.lower()


def _per_channel(values: Sequence[int], made: int) -> Sequence[int]:
    return values if len(values) == made else [*values] * made


def _rescaled(one: StreamLayer, constants: _Constants, layer: int) -> dict[str, Any]:
    if one.kernel.family != "mean":
        return {}
    numbers = one.kernel.numbers
    return {
        "multipliers": constants.name("int32_t", [int(numbers["multiplier"])], f"multipliers{layer}"),
        "shifts": constants.name("int8_t", [int(numbers["shift"])], f"shifts{layer}"),
        "zero": int(numbers["input_zero"]),
    }


def _table(one: StreamLayer, constants: _Constants, layer: int) -> dict[str, Any]:
    return {"weights": constants.name("int8_t", one.kernel.tables["table"], f"table{layer}")}


def _softmax(one: StreamLayer, constants: _Constants, layer: int) -> dict[str, Any]:
    numbers = one.kernel.numbers
    return {
        "multipliers": constants.name(
            "int32_t", [int(numbers["multiplier"]), int(numbers["least"])], f"multipliers{layer}"
        ),
        "shifts": constants.name("int8_t", [int(numbers["shift"])], f"shifts{layer}"),
    }


def _copy(one: StreamLayer, constants: _Constants, layer: int) -> dict[str, Any]:
    del constants, layer
    return {"low": int(one.kernel.numbers.get("fill", 0)), "zero": one.channel}


def _binary(one: StreamLayer, constants: _Constants, layer: int) -> dict[str, Any]:
    numbers = one.kernel.numbers
    places = (1, 0) if one.kernel.operands[0] < 0 else (0, 1)
    names = [f"multiplier_{place}" for place in places] + ["output_multiplier", "left_shift"]
    multipliers = [int(numbers.get(name, 0)) for name in names] + [int(numbers[f"zero_{places[1]}"])]
    shifts = [int(numbers.get(name, 0)) for name in (*(f"shift_{place}" for place in places), "output_shift")]
    found: dict[str, Any] = {
        "multipliers": constants.name("int32_t", multipliers, f"multipliers{layer}"),
        "shifts": constants.name("int8_t", shifts, f"shifts{layer}"),
        "zero": int(numbers[f"zero_{places[0]}"]),
    }
    if one.kernel.constants:
        values = np.asarray(one.kernel.constants[0]).reshape(-1)
        found |= {
            "weights": constants.name("int8_t", values, f"weights{layer}"),
            "other_space": "IN_FLASH", "other_channels": values.size,
        }  # fmt: skip
    return found


_NUMBERS: Final = {
    "conv": _products, "depthwise": _products, "dense": _products, "sum": _rescaled, "mean": _rescaled,
    "table": _table, "softmax": _softmax, "copy": _copy, "binary": _binary,
}  # fmt: skip


def _wide(most: int) -> str:
    return "uint16_t" if most <= _SHORT else "uint32_t"


def _text(name: str, **values: str | int) -> str:
    blocks = {name: () if not value else (value,) for name, value in values.items() if isinstance(value, str)}
    return fill("memsched.codegen.streaming", name, values, blocks)
