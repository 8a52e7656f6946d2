"""Arenas of models of each kernel, as the installed TensorFlow Lite Micro lays them: head and tail, to the byte."""

from __future__ import annotations

import struct

import pytest
from flatbuffers import flexbuffers

from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.limits import AXES, KERNELS
from memsched.runtimes.tflm.resolver import BUILTIN
from memsched.runtimes.tflm.resource_variables import variables as variable_names
from memsched.runtimes.tflm.verification import predicted
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options, pack, unpack
from tests.runtimes.tflm.interpreter import needs_tflm, run_all
from tests.runtimes.tflm.kernel_models import CASES, in_a_row, model, of_axes

pytestmark = needs_tflm


def conditional(bodies: int) -> bytes:
    """Return IFs in a row, each with two bodies of its own."""
    body = Sub([T("x"), T("y")], [O("NEG", [0], [1])], [0], [1])
    tensors = [T("c", (1,), "BOOL"), *(T(f"t{number}") for number in range(bodies + 1))]
    ops = [
        O("IF", [0, 1 + n], [2 + n], options("IfOptions", thenSubgraphIndex=1 + 2 * n, elseSubgraphIndex=2 + 2 * n))
        for n in range(bodies)
    ]
    return build(Sub(tensors, ops, [0, 1], [bodies + 1]), *[body] * 2 * bodies)


def loop() -> bytes:
    less = Sub([T("x", (1,)), T("c", (1,), data=bytes(4)), T("y", (1,), "BOOL")], [O("LESS", [0, 1], [2])], [0], [2])
    body = Sub([T("x", (1,)), T("y", (1,))], [O("NEG", [0], [1])], [0], [1])
    one = O("WHILE", [0], [1], options("WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2))
    return build(Sub([T("x", (1,)), T("y", (1,))], [one], [0], [1]), less, body)


def once() -> bytes:
    body = Sub([T("a", data=bytes(16)), T("b")], [O("NEG", [0], [1])], [], [])
    ops = [O("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1)), O("NEG", [0], [1])]
    return build(Sub([T("x"), T("y")], ops, [0], [1]), body)


def variables(count: int, width: int = 4, dtype: str = "FLOAT32", *, container: bytes | None = None) -> bytes:
    """Return a model that reads and writes variables, one after the other, and each through two handles."""
    tensors, ops = [T("x", (1, width), dtype)], []
    for number in range(count):
        named = options("VarHandleOptions", sharedName=b"state %d" % number, container=container)
        first = len(tensors)
        handles = [T(f"h{number}", (), "RESOURCE"), T(f"g{number}", (), "RESOURCE")]
        tensors += [*handles, T(f"r{number}", (1, width), dtype)]
        ops += [O("VAR_HANDLE", [], [first], named), O("READ_VARIABLE", [first], [first + 2])]
        ops += [O("VAR_HANDLE", [], [first + 1], named), O("ASSIGN_VARIABLE", [first + 1, 0], [])]
    return build(Sub(tensors, ops, [0], [len(tensors) - 1]))


def set_once() -> bytes:
    """Return a model with a variable that a body of its own sets before it is read."""
    handle = options("VarHandleOptions", sharedName=b"state")
    start = Sub(
        [T("h", (), "RESOURCE"), T("zero", data=bytes(16))],
        [O("VAR_HANDLE", [], [0], handle), O("ASSIGN_VARIABLE", [0, 1], [])],
        [],
        [],
    )
    ops = [
        O("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1)),
        O("VAR_HANDLE", [], [1], handle),
        O("READ_VARIABLE", [1], [2]),
        O("ADD", [0, 2], [3], options("AddOptions")),
        O("ASSIGN_VARIABLE", [1, 3], []),
    ]
    return build(Sub([T("x"), T("h", (), "RESOURCE"), T("r"), T("y")], ops, [0], [3]), start)


def mirrored(axes: int) -> bytes:
    pads = T("pads", (axes, 2), "INT32", int32s(*[0, 1] * axes))
    op = O("MIRROR_PAD", [0, 1], [2], options("MirrorPadOptions", mode=0))
    return build(Sub([T("x", (2,) * axes), pads, T("y", (3,) * axes)], [op], [0], [2]))


def _of(kind: str, inputs: list[T], output: T, table: object = None) -> bytes:
    op = O(kind, range(len(inputs)), [len(inputs)], table)
    return build(Sub([*inputs, output], [op], [0] if inputs[0].data is None else [], [len(inputs)]))


FURTHER = {
    "ASSIGN_VARIABLE": variables(2),
    "BROADCAST_ARGS": _of(
        "BROADCAST_ARGS",
        [T("a", (2,), "INT32", int32s(1, 4)), T("b", (2,), "INT32", int32s(3, 1))],
        T("y", (2,), "INT32"),
    ),
    "CALL_ONCE": once(),
    "EMBEDDING_LOOKUP": _of(
        "EMBEDDING_LOOKUP",
        [T("i", (2,), "INT32", int32s(1, 0)), T("w", (3, 4), data=struct.pack("<12f", *range(12)))],
        T("y", (2, 4)),
    ),
    "FILL": _of("FILL", [T("d", (2,), "INT32", int32s(2, 3)), T("v", (), data=bytes(4))], T("y", (2, 3))),
    "IF": conditional(1),
    "READ_VARIABLE": set_once(),
    "SHAPE": _of("SHAPE", [T("x", (2, 3))], T("y", (2,), "INT32"), options("ShapeOptions")),
    "VAR_HANDLE": variables(1, container=b"c"),
    "WHILE": loop(),
}


def check(models: list[bytes]) -> None:
    for data, ran in zip(models, run_all(models, runs=1), strict=True):
        assert not ran.refused, ran.words
        assert predicted(parse(data)) == (ran.head, ran.tail)


def test_all_kernels_are_measured() -> None:
    assert FURTHER.keys() | CASES.keys() == BUILTIN.keys()


@pytest.mark.parametrize("kind", sorted(CASES))
def test_each_kernel_with_each_type_that_it_takes(kind: str) -> None:
    check([model(kind, CASES[kind], types) for types in sorted(KERNELS[kind].taken)])


@pytest.mark.parametrize("kind", sorted(CASES))
def test_each_kernel_before_and_behind_others(kind: str) -> None:
    """What a kernel keeps from its beginning lies before what others prepare."""
    one = model(kind, CASES[kind], min(KERNELS[kind].taken))
    others = [model(other, CASES[other], min(KERNELS[other].taken)) for other in ("CONV_2D", "MEAN", "SELECT_V2")]
    check([in_a_row(*pair) for other in others for pair in ((one, other), (other, one))])


@pytest.mark.parametrize("axes", range(1, 7))
def test_shapes_that_kernels_copy(axes: int) -> None:
    shape = (2,) * axes
    places = T("places", (2,), "INT32", int32s(0, 1))
    rows = T("rows", (2, 1), "INT32", int32s(0, 1))
    last = options("GatherOptions", axis=axes - 1)
    given, made = [T("x", shape), places], T("y", shape)
    check([_of("GATHER", given, made, last), _of("GATHER_ND", [given[0], rows], made, options("GatherNdOptions"))])


@pytest.mark.parametrize("kind", sorted(FURTHER))
def test_each_other_kernel(kind: str) -> None:
    check([FURTHER[kind]])


@pytest.mark.parametrize("kind", sorted(AXES))
def test_more_axes(kind: str) -> None:
    least, most, _ = AXES[kind]
    check([of_axes(kind, axes, "float32") for axes in range(least, most + 1)])


def test_the_scratch_of_a_mirror_pad() -> None:
    check([mirrored(axes) for axes in range(1, 7)])


@pytest.mark.parametrize("count", range(1, 6))
def test_many_operators_and_subgraphs(count: int) -> None:
    weights = T("w", (4, 4), data=bytes(64))
    chain = [O("FULLY_CONNECTED", [n, count + 1, -1], [n + 1], options("FullyConnectedOptions")) for n in range(count)]
    joins = [O("CONCATENATION", [n, n], [n + 1], options("ConcatenationOptions", axis=0)) for n in range(count)]
    check(
        [
            conditional(count),
            build(Sub([*(T(f"t{n}") for n in range(count + 1)), weights], chain, [0], [count])),
            build(Sub([T(f"t{n}", (2**n, 4)) for n in range(count + 1)], joins, [0], [count])),
        ]
    )


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.tflite")), ids=lambda path: path.stem)
def test_whole_models(path: object) -> None:
    check([(MODELS / str(path)).read_bytes()])


@pytest.mark.parametrize("dtype", ["INT8", "INT16", "FLOAT32"])
@pytest.mark.parametrize("width", [1, 16, 100])
def test_resource_variables(dtype: str, width: int) -> None:
    check([variables(count, width, dtype) for count in range(1, 4)])


def test_handles_of_one_name_in_other_containers_are_other_variables() -> None:
    tensors = [T("x"), T("h", (), "RESOURCE"), T("g", (), "RESOURCE"), T("k", (), "RESOURCE")]
    given = [(b"a", b"n"), (b"b", b"m"), (b"a", b"n")]
    ops = [
        O("VAR_HANDLE", [], [number + 1], options("VarHandleOptions", container=container, sharedName=name))
        for number, (container, name) in enumerate(given)
    ]
    ops += [O("ASSIGN_VARIABLE", [number + 1, 0], []) for number in range(3)]
    data = build(Sub([*tensors, T("y")], [*ops, O("NEG", [0], [4])], [0], [4]))
    assert variable_names(parse(data)) == (("a", "n"), ("b", "m"))
    check([data])


def custom(kind: str, inputs: list[T], outputs: list[T], given: dict[str, object]) -> bytes:
    count = len(inputs)
    read = [number for number, tensor in enumerate(inputs) if tensor.data is None]
    made = range(count, count + len(outputs))
    file = unpack(build(Sub([*inputs, *outputs], [O(f"CUSTOM:{kind}", range(count), made)], read, made)))
    file.subgraphs[0].operators[0].customOptions = list(flexbuffers.Dumps(given))
    return pack(file)


@pytest.mark.parametrize("length", [16, 64, 512])
@pytest.mark.parametrize(("dtype", "number"), [("FLOAT32", 0), ("INT32", 2), ("INT16", 7)])
def test_fourier_transforms(dtype: str, number: int, length: int) -> None:
    times, frequencies = T("x", (length,), dtype), T("y", (length + 2,), dtype)
    given: dict[str, object] = {"T": number, "fft_length": length}
    check(
        [
            custom("SignalRfft", [times], [frequencies], given),
            custom("SignalIrfft", [frequencies], [times], given),
        ]
    )


@pytest.mark.parametrize("channels", [2, 3, 40])
def test_the_other_kernels_for_audio_features(channels: int) -> None:
    word, wide, scale = T("w", (channels,), "UINT32"), T("l", (channels,), "UINT64"), T("s", (), "INT32")
    short, table = T("x", (8,), "INT16"), T("t", (channels + 1,), "INT16", bytes(2 * channels + 2))
    noise = T("n", (channels,), "UINT32")
    keys = "alternate_one_minus_smoothing alternate_smoothing clamping min_signal_remaining num_channels"
    keys += " one_minus_smoothing smoothing smoothing_bits spectral_subtraction_bits"
    subtraction: dict[str, object] = dict.fromkeys(keys.split(), 1)
    subtraction |= {"clamping": False, "num_channels": channels}
    gains = T("g", (125,), "INT16", bytes(250))
    models = [
        custom("SignalWindow", [short, T("c", (8,), "INT16", bytes(16))], [T("y", (8,), "INT16")], {"shift": 2}),
        custom("SignalFftAutoScale", [short], [T("y", (8,), "INT16"), scale], {}),
        custom("SignalEnergy", [short], [T("y", (4,), "UINT32")], {"end_index": 3, "start_index": 1}),
        custom(
            "SignalFilterBank",
            [T("e", (8,), "UINT32"), table, table, table, table, table],
            [wide],
            {"num_channels": channels},
        ),
        custom("SignalFilterBankSquareRoot", [wide, scale], [word], {}),
        custom("SignalFilterBankSpectralSubtraction", [word], [T("y", (channels,), "UINT32"), noise], subtraction),
        custom("SignalPCAN", [word, noise, gains], [T("y", (channels,), "UINT32")], {"snr_shift": 6}),
        custom(
            "SignalFilterBankLog",
            [word],
            [T("y", (channels,), "INT16")],
            {"input_correction_bits": 3, "output_scale": 1600},
        ),
    ]
    check(models)


def delay(rows: int, length: int) -> bytes:
    shape = (rows, 8)
    return custom("SignalDelay", [T("x", shape, "INT16")], [T("y", shape, "INT16")], {"delay_length": length})


def framer(rows: int, size: int, step: int) -> bytes:
    made = [T("y", (rows, 8 // step, size), "INT16"), T("valid", (), "BOOL")]
    given: dict[str, object] = {"frame_size": size, "frame_step": step, "prefill": True}
    return custom("SignalFramer", [T("x", (rows, 8), "INT16")], made, given)


def stacker(channels: int, left: int, right: int) -> bytes:
    given: dict[str, object] = {"num_channels": channels, "stacker_left_context": left}
    given |= {"stacker_right_context": right, "stacker_step": 1}
    made = [T("y", (channels * (left + right + 1),), "INT16"), T("valid", (), "BOOL")]
    return custom("SignalStacker", [T("x", (channels,), "INT16")], made, given)


def overlap_add(rows: int, dtype: str, number: int) -> bytes:
    given: dict[str, object] = {"T": number, "frame_step": 4}
    return custom("SignalOverlapAdd", [T("x", (rows, 3, 8), dtype)], [T("y", (rows, 12), dtype)], given)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_kernels_that_keep_a_history(rows: int) -> None:
    ring = T("y", (1, 5, 1, 8 * rows), "INT8", scales=(1.0,), variable=True)
    slots = T("x", (1, 1, 1, 8 * rows), "INT8", scales=(1.0,))
    check(
        [
            *(delay(rows, length) for length in (1, 3, 100)),
            *(framer(rows, size, step) for size, step in ((4, 4), (6, 4), (60, 2))),
            *(stacker(rows, left, right) for left, right in ((0, 0), (1, 2), (30, 9))),
            overlap_add(rows, "INT16", 7),
            overlap_add(rows, "FLOAT32", 0),
            custom("CIRCULAR_BUFFER", [slots], [ring], {"cycles_max": 1}),
        ]
    )
