"""Files as converters for firmware lay them out: operators without outputs, and operators with memory of their own."""

from __future__ import annotations

import numpy as np
import pytest

import memsched
from memsched.commands.failures import DEFECTS
from memsched.report.console import findings
from memsched.report.values.optimize import OptimizeReport
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

SIDE, CHANNELS = 8, 4


def compiled(offsets: tuple[int, ...] = (0, 0, 0, -1)) -> bytes:
    """Return a model as Vela writes it: one custom operator, whose memory is among its inputs and holds the others."""
    tensors = [
        T("input", (1, 16, 16, 1), "INT8"),
        T("scratch", (512,), "UINT8"),
        T("scratch_fast", (512,), "UINT8"),
        T("made", (1, 2), "INT8"),
        T("commands", (8,), "UINT8", data=bytes(8)),
    ]
    plan = int32s(0, 0, len(tensors), *offsets, -1)
    sub = Sub(tensors, [O("CUSTOM:ethos-u", [4, 1, 2, 0], [3])], [0], [3])
    return build(sub, metadata=[("OfflineMemoryAllocation", plan)])


def streaming() -> bytes:
    """Return a model that keeps a feature map in a resource: operators without inputs and without outputs."""
    shape = (1, SIDE, SIDE, CHANNELS)
    tensors = [
        T("x", shape),
        T("handle", (), "RESOURCE"),
        T("old", shape),
        T("sum", shape),
        T("pooled", shape),
        T("y", shape),
    ]
    pool = options("Pool2DOptions", padding=0, strideH=1, strideW=1, filterHeight=3, filterWidth=3)
    ops = [
        O("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1)),
        O("VAR_HANDLE", [], [1], options("VarHandleOptions", sharedName=b"kept")),
        O("READ_VARIABLE", [1], [2]),
        O("ADD", [0, 2], [3], options("AddOptions")),
        O("ASSIGN_VARIABLE", [1, 3], []),
        O("MAX_POOL_2D", [3], [4], pool),
        O("ADD", [4, 0], [5], options("AddOptions")),
    ]
    zero = bytes(4 * SIDE * SIDE * CHANNELS)
    begin = Sub(
        [T("begin", (), "RESOURCE"), T("zero", shape, data=zero)],
        [
            O("VAR_HANDLE", [], [0], options("VarHandleOptions", sharedName=b"kept")),
            O("ASSIGN_VARIABLE", [0, 1], []),
        ],
        [],
        [],
    )
    return build(Sub(tensors, ops, [0], [5]), begin)


def report_of(data: bytes, **words: object) -> OptimizeReport:
    found: OptimizeReport = memsched.optimize(data, effort=0.5, **words).report.values  # type: ignore[arg-type]
    return found


def test_what_a_custom_operator_works_in_belongs_to_it() -> None:
    graph = memsched.load(compiled()).graph
    assert [tensor.name for tensor in graph.tensors] == ["input", "made"]
    assert graph.ops[0].workspace == 1024


def test_a_compiled_file_is_analyzed_and_left_as_it_is() -> None:
    data = compiled()
    report = memsched.analyze(data, target="tflm").report.values
    assert report.sections.tflm is not None
    assert report.sections.tflm.plan_fault is None
    assert report.sections.tflm.file_head_bytes == 512 + 16
    result = memsched.optimize(data, target="tflm", effort=0.5)
    assert result.model == data
    assert report_of(data, target="litert").output is not None


@pytest.mark.parametrize(
    ("offsets", "peak", "head"),
    [
        # The memory holds input and output, both of them lie apart, and each tensor does.
        ((0, 0, 0, 0), 512 - 16 + 2, 512),
        ((0, 0, 0, -1), 514, 528),
        ((512, 0, 0, 768), 770, 784),
        ((1024, 0, 512, 1280), 1282, 1296),
    ],
)
def test_what_a_plan_lays_over_each_other_for_an_operator_is_counted_once(
    offsets: tuple[int, ...], peak: int, head: int
) -> None:
    report = memsched.analyze(compiled(offsets), target="tflm").report.values
    assert report.sections.tflm is not None
    assert report.sections.tflm.file_head_bytes == head
    assert report.written.schedule.peak_bytes == report.proof.bound_bytes == peak
    assert report.written.schedule.arena_bytes == head
    assert report.proof.status == "optimal"
    assert any(f"{peak:,} B" in line for line, _ in findings(report, 80, verbose=False))
    # Elsewhere no plan is followed.
    assert (
        memsched.analyze(compiled(offsets), target="litert").report.values.written.schedule.peak_bytes == 1024 + 256 + 2
    )


def test_a_plan_that_lays_other_tensors_over_each_other_is_still_wrong() -> None:
    tensors = [T("x"), T("a"), T("b"), T("y")]
    ops = [O("ABS", [0], [1]), O("NEG", [0], [2]), O("ADD", [1, 2], [3], options("AddOptions"))]
    plan = int32s(0, 0, 4, 0, 64, 64, 128)
    data = build(Sub(tensors, ops, [0], [3]), metadata=[("OfflineMemoryAllocation", plan)])
    report = memsched.analyze(data, target="tflm").report.values
    assert report.sections.tflm is not None
    assert report.sections.tflm.plan_fault is not None


@pytest.mark.parametrize("target", ["tflm", "litert"])
@pytest.mark.parametrize("allow", [None, ("reorder", "inplace", "tile"), ("all", "algebra")])
def test_operators_without_outputs_hold_up_no_rewrite(
    target: str, allow: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEFECTS, "raise")
    report = report_of(streaming(), target=target, hooks=memsched.Hooks(words=("optimize", "net.tflite")), allow=allow)
    assert report.sections.failures == ()
    assert report.sections.verification is None or report.sections.verification.outputs_equal is not False


def half_floats(side: int = 32) -> bytes:
    """Return two convolutions whose weights are stored as half floats, and made floats by operators."""
    rng = np.random.default_rng(0)
    shapes = ((16, 3, 3, 4), (4, 3, 3, 16))
    weights = [(rng.normal(size=shape) / 8).astype(np.float16).tobytes() for shape in shapes]
    tensors = [T("x", (1, side, side, 4))]
    for name, shape, data in zip("ab", shapes, weights, strict=True):
        tensors += [T(f"{name}.half", shape, "FLOAT16", data=data), T(f"{name}.weights", shape)]
        tensors += [T(f"{name}.bias", shape[:1], data=bytes(4 * shape[0])), T(name, (1, side, side, shape[0]))]
    conv = options("Conv2DOptions", padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
    ops = [
        O("DEQUANTIZE", [1], [2], options("DequantizeOptions")),
        O("DEQUANTIZE", [5], [6], options("DequantizeOptions")),
        O("CONV_2D", [0, 2, 3], [4], conv),
        O("CONV_2D", [4, 6, 7], [8], conv),
    ]
    return build(Sub(tensors, ops, [0], [8]))


def test_a_loop_makes_its_weights_of_half_floats_itself() -> None:
    result = memsched.optimize(half_floats(), target="tflm", level=2, effort=2)
    report = result.report.values
    assert report.sections.tile is not None
    assert report.sections.tile.applied
    # What no loop could be written for is named as a defect there.
    assert [one.reason for one in report.sections.tile.refusals if one.found] == []
