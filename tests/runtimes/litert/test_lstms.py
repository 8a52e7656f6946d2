"""What LiteRT's LSTMs and Fourier transforms need of their own: the predicted bytes are those that it takes."""

from __future__ import annotations

import pytest

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options, pack, unpack
from tests.runtimes.litert.test_kernels import SCALE, constant, data, one
from tests.runtimes.litert.test_memory import SLACK, arenas

ABSENT = -1


def weights(kind: str) -> tuple[str, tuple[float, ...]]:
    return ("FLOAT32", ()) if kind == "float" else ("INT8", SCALE)


def cell(kind: str, *, coupled: bool = False, projected: bool = False, batch: int = 2) -> Sub:
    """Return an LSTM of one step of 24 inputs and 40 cells."""
    made, cells, inputs = 16 if projected else 40, 40, 24
    tensors, reads = [data("x", (batch, inputs))], [0]
    for position in range(1, 20):
        gone = position in {9, 10, 11, 17} or (coupled and position in {1, 5, 12}) or (position == 16 and not projected)
        if gone:
            reads.append(ABSENT)
            continue
        reads.append(len(tensors))
        if position >= 18:
            tensors.append(T(f"s{position}", (batch, made if position == 18 else cells), variable=True))
        elif position == 16:
            tensors.append(constant("projection", (made, cells), *weights(kind)))
        elif position >= 12:
            tensors.append(constant(f"b{position}", (cells,)))
        else:
            tensors.append(constant(f"w{position}", (cells, inputs if position < 5 else made), *weights(kind)))
    tensors.append(data("y", (batch, made)))
    table = options("LSTMOptions", fusedActivationFunction=4)
    return one("LSTM", tensors, [*reads, *(ABSENT,) * 4], len(tensors) - 1, table)


def two_ways(kind: str, batch: int, inputs: int, cells: int) -> Sub:
    """Return a BIDIRECTIONAL_SEQUENCE_LSTM of five steps."""
    tensors, reads = [data("x", (batch, 5, inputs))], [0]
    for way in "fb":
        for position in range(1, 18):
            if position in {9, 10, 11, 16, 17}:
                reads.append(ABSENT)
                continue
            reads.append(len(tensors))
            if position >= 12:
                tensors.append(constant(f"{way}b{position}", (cells,)))
            else:
                shape = (cells, inputs if position < 5 else cells)
                tensors.append(constant(f"{way}w{position}", shape, *weights(kind)))
    for state in range(4):
        reads.append(len(tensors))
        tensors.append(T(f"s{state}", (batch, cells), variable=True))
    made = [len(tensors), len(tensors) + 1]
    tensors += [data("y", (batch, 5, cells)), data("z", (batch, 5, cells))]
    table = options("BidirectionalSequenceLSTMOptions", fusedActivationFunction=4, timeMajor=False)
    return Sub(tensors, [O("BIDIRECTIONAL_SEQUENCE_LSTM", [*reads, *(ABSENT,) * 9], made, table)], [0], made)


def integers(kind: str, batch: int, inputs: int, cells: int) -> bytes:
    """Return an LSTM in integers, whose scales between its steps are those of tensors that no memory is given to."""
    steps = (5,) if kind.startswith("UNIDIRECTIONAL") else ()
    tensors, reads = [data("x", (batch, *steps, inputs), "INT8")], [0]
    for position in range(1, 20):
        if position in {9, 10, 11, 16, 17}:
            reads.append(ABSENT)
            continue
        reads.append(len(tensors))
        if position == 18:
            tensors.append(T("s18", (batch, cells), "INT8", variable=True, scales=(1 / 128,)))
        elif position == 19:
            tensors.append(T("s19", (batch, cells), "INT16", variable=True, scales=(2**-11,)))
        elif position >= 12:
            tensors.append(constant(f"b{position}", (cells,), "INT32", (0.25,)))
        else:
            tensors.append(constant(f"w{position}", (cells, inputs if position < 5 else cells), "INT8", SCALE))
    made = len(tensors)
    tensors.append(T("y", (batch, *steps, cells), "INT8", scales=(1 / 128,)))
    between = range(len(tensors), len(tensors) + 5)
    tensors += [T(f"i{number}", (1,), "INT16", scales=(2**-12,)) for number in range(4)]
    tensors.append(T("i4", (1,), "INT8", scales=(1 / 128,)))
    name = "UnidirectionalSequenceLSTMOptions" if steps else "LSTMOptions"
    table = options(name, fusedActivationFunction=4)
    model = unpack(build(one(kind, tensors, [*reads, *(ABSENT,) * 4], made, table)))
    model.subgraphs[0].operators[0].intermediates = list(between)
    return pack(model)


def transform(rows: int, columns: int) -> Sub:
    tensors = [
        data("x", (1, rows, columns)),
        T("length", (2,), "INT32", int32s(rows, columns)),
        T("y", (1, rows, columns // 2 + 1), "COMPLEX64"),
    ]
    return one("RFFT2D", tensors, [0, 1], 2, options("Rfft2dOptions"))


CASES = {
    **{
        f"lstm-{kind}-{coupled}-{projected}": build(cell(kind, coupled=coupled, projected=projected))
        for kind in ("float", "hybrid")
        for coupled in (False, True)
        for projected in (False, True)
    },
    **{
        f"two-ways-{kind}-{'-'.join(map(str, sizes))}": build(two_ways(kind, *sizes))
        for kind in ("float", "hybrid")
        for sizes in ((2, 24, 40), (1, 24, 80), (4, 32, 128))
    },
    **{
        f"integers-{kind}-{cells}": integers(kind, 3, 32, cells)
        for kind in ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")
        for cells in (64, 200)
    },
    **{
        f"transform-{rows}-{columns}": build(transform(rows, columns))
        for rows, columns in ((16, 64), (64, 256), (1, 512))
    },
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_kernel_needs_is_predicted(name: str) -> None:
    predicted, measured = arenas(CASES[name])
    assert abs(predicted - measured) < SLACK
    assert abs(predicted / measured - 1) < 0.02
