"""Arenas of models of each kernel, as the installed TensorFlow Lite Micro lays them: head and tail, to the byte."""

from __future__ import annotations

import struct

import pytest
from flatbuffers import flexbuffers

from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.limits import AXES, KERNELS
from memsched.runtimes.tflm.resolver import BUILTIN
from memsched.runtimes.tflm.verification import predicted
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options, pack, unpack
from tests.runtimes.tflm.interpreter import needs_tflm, run_all
from tests.runtimes.tflm.kernel_models import CASES, model, of_axes

pytestmark = needs_tflm

_STATEFUL = {"ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"}
"""Of resource variables, whose number is the firmware's affair."""


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


def mirrored(axes: int) -> bytes:
    pads = T("pads", (axes, 2), "INT32", int32s(*[0, 1] * axes))
    op = O("MIRROR_PAD", [0, 1], [2], options("MirrorPadOptions", mode=0))
    return build(Sub([T("x", (2,) * axes), pads, T("y", (3,) * axes)], [op], [0], [2]))


def _of(kind: str, inputs: list[T], output: T, table: object = None) -> bytes:
    op = O(kind, range(len(inputs)), [len(inputs)], table)
    return build(Sub([*inputs, output], [op], [0] if inputs[0].data is None else [], [len(inputs)]))


FURTHER = {
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
    "SHAPE": _of("SHAPE", [T("x", (2, 3))], T("y", (2,), "INT32"), options("ShapeOptions")),
    "WHILE": loop(),
}


def check(models: list[bytes]) -> None:
    for data, ran in zip(models, run_all(models, runs=1), strict=True):
        assert not ran.refused, ran.words
        assert predicted(parse(data)) == (ran.head, ran.tail)


def test_all_kernels_are_measured() -> None:
    assert FURTHER.keys() | CASES.keys() | _STATEFUL == BUILTIN.keys()


@pytest.mark.parametrize("kind", sorted(CASES))
def test_each_kernel_with_each_type_that_it_takes(kind: str) -> None:
    check([model(kind, CASES[kind], types) for types in sorted(KERNELS[kind].taken)])


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


def custom(kind: str, inputs: list[T], outputs: list[T], given: dict[str, object]) -> bytes:
    count = len(inputs)
    read = [number for number, tensor in enumerate(inputs) if tensor.data is None]
    made = range(count, count + len(outputs))
    file = unpack(build(Sub([*inputs, *outputs], [O(f"CUSTOM:Signal{kind}", range(count), made)], read, made)))
    file.subgraphs[0].operators[0].customOptions = list(flexbuffers.Dumps(given))
    return pack(file)


@pytest.mark.parametrize("length", [16, 64, 512])
@pytest.mark.parametrize(("dtype", "number"), [("FLOAT32", 0), ("INT32", 2), ("INT16", 7)])
def test_fourier_transforms(dtype: str, number: int, length: int) -> None:
    times, frequencies = T("x", (length,), dtype), T("y", (length + 2,), dtype)
    given: dict[str, object] = {"T": number, "fft_length": length}
    check([custom("Rfft", [times], [frequencies], given), custom("Irfft", [frequencies], [times], given)])


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
        custom("Window", [short, T("c", (8,), "INT16", bytes(16))], [T("y", (8,), "INT16")], {"shift": 2}),
        custom("FftAutoScale", [short], [T("y", (8,), "INT16"), scale], {}),
        custom("Energy", [short], [T("y", (4,), "UINT32")], {"end_index": 3, "start_index": 1}),
        custom(
            "FilterBank",
            [T("e", (8,), "UINT32"), table, table, table, table, table],
            [wide],
            {"num_channels": channels},
        ),
        custom("FilterBankSquareRoot", [wide, scale], [word], {}),
        custom("FilterBankSpectralSubtraction", [word], [T("y", (channels,), "UINT32"), noise], subtraction),
        custom("PCAN", [word, noise, gains], [T("y", (channels,), "UINT32")], {"snr_shift": 6}),
        custom(
            "FilterBankLog", [word], [T("y", (channels,), "INT16")], {"input_correction_bits": 3, "output_scale": 1600}
        ),
    ]
    check(models)
