"""The C files of a program: tables of the model, and the sources that run them.

A model's names come into comments only, as far as their characters are harmless there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Final

from memsched import __version__
from memsched.base.templates import comment, fill
from memsched.codegen.layers import LayerCode
from memsched.codegen.onchip.network import Range
from memsched.codegen.program import ChipStep, GroupProgram, LayerWeights, Program

__all__ = ["WEIGHTS", "c_files", "chip_bytes"]

WEIGHTS: Final = "weights.bin"
_RUNTIME: Final = ("memsched_dma.h", "memsched_onchip.h", "memsched_onchip.c", "memsched_kernels.h")
_HOST: Final = ("README.txt", "dma_host.h", "dma_host.c", "host.c")


def c_files(program: Program, model: str, target: str) -> dict[str, bytes]:
    """Return the contents of all files, by name.

    Args:
        model: The name of the model's file, for comments.
        target: The target's name, likewise.
    """
    sources = sorted({layer.source for layer in program.layers})
    found = {name: _resource(name) for name in (*_RUNTIME, *sources, *_HOST)}
    found["model.h"] = _header(program, model, target).encode()
    found["model.c"] = _tables(program, model).encode()
    found[WEIGHTS] = program.weights
    return found


def chip_bytes(program: Program) -> int:
    """Return the bytes of on-chip memory that the program uses."""
    return max((_height(one) for one in program.groups), default=0)


def _resource(name: str) -> bytes:
    return (resources.files("memsched.codegen") / "c" / name).read_bytes()


# The header ----------------------------------------------------------------------------------------------------------


def _ends(program: Program, tensors: Sequence[int], side: str) -> Iterator[str]:
    graph, maps = program.network.graph, program.network.maps
    for number, tensor in enumerate(tensors):
        one, name = maps[tensor], comment(graph.tensors[tensor].name)
        shape = f"[{one.batch}][{one.rows}][{one.columns}][{one.channels}]" if one.axes else f"[{one.channels}]"
        dtype = comment(graph.tensors[tensor].dtype)
        yield f"#define MODEL_{side}_{number}_BYTES {one.size}u /* {dtype}{shape}: {name} */"


def _sizes(program: Program, tensors: Sequence[int]) -> str:
    return "{" + ", ".join(f"{program.network.maps[tensor].size}u" for tensor in tensors) + "}"


def _header(program: Program, model: str, target: str) -> str:
    graph, plan = program.network.graph, program.plan
    values: dict[str, str | int] = {
        "version": comment(__version__),
        "model": comment(model),
        "target": comment(target),
        "groups": len(program.groups),
        "chip_bytes": chip_bytes(program),
        "capacity": plan.capacity,
        "arena_bytes": program.arena,
        "weights": WEIGHTS,
        "weights_bytes": len(program.weights),
        "loaded": plan.cost.read,
        "stored": plan.cost.written,
        "inputs": len(graph.inputs),
        "outputs": len(graph.outputs),
        "input_sizes": _sizes(program, graph.inputs),
        "output_sizes": _sizes(program, graph.outputs),
    }
    ends = [*_ends(program, graph.inputs, "INPUT"), *_ends(program, graph.outputs, "OUTPUT")]
    return fill("memsched.codegen", "model.h", values, {"ends": ends})


def _height(one: GroupProgram) -> int:
    ends = [max(offsets) + buffer.size for buffer, offsets in zip(one.buffers, one.offsets, strict=True)]
    slices = [step.weights for step in one.steps if step.weights is not None]
    ends += [max(weights.offsets) + weights.slice * sum(weights.bytes) for weights in slices if weights.slice]
    return max([one.group.height, *ends])


# Tables --------------------------------------------------------------------------------------------------------------


def _range(span: Range | None) -> str:
    return "{0, 0}" if span is None else f"{{{span[0]}, {span[1]}}}"


class _Ranges:
    """Arrays of ranges, each written once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Range | None, ...], str] = {}

    def name(self, ranges: Sequence[Range | None]) -> str:
        """Return the name of the array."""
        return self._known.setdefault(tuple(ranges), f"ranges_{len(self._known)}")

    def lines(self) -> Iterator[str]:
        """Yield the definitions."""
        for ranges, name in self._known.items():
            yield from _array(f"static const ms_range {name}[{len(ranges)}]", [_range(span) for span in ranges])


def _array(head: str, values: Sequence[str]) -> Iterator[str]:
    yield f"{head} = {{"
    line = "   "
    for value in values:
        if len(line) + len(value) > 116:
            yield line
            line = "   "
        line += f" {value},"
    yield line
    yield "};"


def _tables(program: Program, model: str) -> str:
    ranges = _Ranges()
    groups = [line for number, one in enumerate(program.groups) for line in _group(program, number, one, ranges)]
    entries = [_group_entry(number, one) for number, one in enumerate(program.groups)]
    groups += [*_tensors(program), *_array(f"static const ms_group groups[{max(1, len(entries))}]", entries)]
    layers = [
        line
        for op, layer in enumerate(program.layers)
        if not program.network.layers[op].view or _in_groups(program, op)
        for line in _layer(program, op, layer)
    ]
    planned = [f"{{{one.group.cost.read}ull, {one.group.cost.written}ull}}" for one in program.groups]
    values: dict[str, str | int] = {
        "version": comment(__version__),
        "model": comment(model),
        "points": max([1, *(_point(program, op) for op in range(len(program.layers)))]),
        "stores": max([1, *(len(one.stores) for one in program.groups)]),
    }
    blocks = {
        "layers": layers,
        "ranges": list(ranges.lines()),
        "groups": groups,
        "planned": list(_array("const uint64_t model_group_bytes[MODEL_GROUPS][2]", planned)),
    }
    return fill("memsched.codegen", "model.c", values, blocks)


def _in_groups(program: Program, op: int) -> bool:
    return any(op in one.group.ops for one in program.groups)


def _point(program: Program, op: int) -> int:
    writes = program.network.layers[op].writes
    return program.network.maps[writes[0]].channels if writes else 1


def _layer(program: Program, op: int, layer: LayerCode) -> Iterator[str]:
    one = program.network.graph.ops[op]
    yield f"/* {op}: {comment(one.type)} {comment(one.name)} */"
    for field, (kind, values) in layer.arrays.items():
        yield from _array(f"static const {kind} layer_{op}_{field}[{len(values)}]", values)
    fields = [f".{name} = {value}" for name, value in layer.fields.items()]
    fields += [f".{name} = layer_{op}_{name}" for name in layer.arrays]
    yield from _array(f"static const {layer.structure} layer_{op}", fields or ["0"])


def _group(program: Program, number: int, one: GroupProgram, ranges: _Ranges) -> Iterator[str]:
    names, tile = program.network.graph, one.group.tile
    yield (
        f"/* Group {number}: {len(one.steps)} layers in {tile.rows} x {tile.columns} pieces of the plane, "
        f"{tile.channels} of the channels. */"
    )
    buffers = []
    for buffer, offsets in zip(one.buffers, one.offsets, strict=True):
        parts = (buffer.rows, buffer.columns, buffer.channels)
        counts = ", ".join(str(len(part)) for part in parts)
        places = ", ".join(ranges.name(part) for part in parts)
        buffers.append(
            f"/* {comment(names.tensors[buffer.tensor].name)} */ "
            f"{{{buffer.tensor}, {{{offsets[0]}u, {offsets[-1]}u}}, {places}, {counts}, {int(buffer.addends)}}}"
        )
    yield from _array(f"static const ms_buffer buffers_{number}[{len(buffers)}]", buffers)
    for place, step in enumerate(one.steps):
        if step.weights is not None:
            yield f"static const ms_weights weights_{number}_{place} = {_weights(step.weights)};"
    steps = [_step(number, place, step) for place, step in enumerate(one.steps)]
    yield from _array(f"static const ms_step steps_{number}[{len(steps)}]", steps)
    loads = [
        f"{{{load.buffer}, {load.step}, {load.issue}, {int(load.ahead)}, {load.when}, {int(load.kept)}}}"
        for load in one.loads
    ]
    yield from _array(
        f"static const ms_load loads_{number}[{max(1, len(loads))}]", loads or ["{-1, -1, -2, 0, MS_EVERY_PIECE, 0}"]
    )
    stores = [
        f"{{{store.buffer}, {store.step}, {', '.join(map(ranges.name, (store.rows, store.columns, store.channels)))}}}"
        for store in one.stores
    ]
    yield from _array(
        f"static const ms_store stores_{number}[{max(1, len(stores))}]", stores or ["{-1, -1, NULL, NULL, NULL}"]
    )
    yield ""


def _step(group: int, place: int, step: ChipStep) -> str:
    weights = "NULL" if step.weights is None else f"&weights_{group}_{place}"
    reads = ", ".join(map(str, step.reads))
    return f"{{{step.kernel}, &layer_{step.op}, {{{reads}}}, {len(step.reads)}, {step.made}, {weights}}}"


def _weights(one: LayerWeights) -> str:
    lists = [f"{{{', '.join(f'{value}u' for value in values)}}}" for values in (one.dram, one.bytes)]
    offsets = f"{{{one.offsets[0]}u, {one.offsets[-1]}u}}"
    counts = f"{len(one.dram)}, {one.filters}, {offsets}, {one.slice}, {len(one.offsets)}"
    return f"{{{lists[0]}, {lists[1]}, {counts}, {one.each}u, {one.beside}u}}"


def _group_entry(number: int, one: GroupProgram) -> str:
    tile = one.group.tile
    outermost = int(tile.weights == "resident")
    return (
        f"{{{tile.rows}, {tile.columns}, {tile.channels}, {outermost}, {tile.front}, buffers_{number}, steps_{number}, "
        f"{len(one.steps)}, loads_{number}, {len(one.loads)}, stores_{number}, {len(one.stores)}}}"
    )


def _tensors(program: Program) -> Iterator[str]:
    entries = []
    for one, dram in zip(program.network.maps, program.tensors, strict=True):
        space, place = ("MS_ARENA", 0) if dram is None else (dram.space, dram.place)
        shape = f"{{{one.batch}, {one.rows}, {one.columns}, {one.channels}}}"
        entries.append(f"{{{shape}, {one.element}, {space}, {place}u}}")
    yield from _array(f"static const ms_tensor tensors[{len(entries)}]", entries)
    yield ""
