"""What kernels on CMSIS-NN and ESP-NN ask for, against values worked out by hand from their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.commands.optimize import optimize as compiler
from memsched.commands.optimize.analysis import analyze
from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.tflm.kernel_sets import REFERENCE, kernel_set
from memsched.runtimes.tflm.kernels import scratch_requests
from memsched.runtimes.tflm.persistent import estimates, unknown_kernels
from memsched.runtimes.tflm.plan import kernel_scratch, predict
from memsched.runtimes.tflm.relay import RelayRules
from memsched.targets.load import load_target
from tests.failures import fails
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.runtimes.tflm.interpreter import needs_tflm

ARM = ("cmsis-nn", "cmsis-nn-dsp", "cmsis-nn-mve")
MODELS = Path(__file__).parents[3] / "models"


def layer(
    kind: str,
    given: tuple[int, int, int],
    window: tuple[int, int],
    made: tuple[int, int, int],
    *,
    stride: int = 1,
    same: bool = True,
    dtype: str = "INT8",
    weights: str = "INT8",
) -> FileModel:
    """A model of a single convolution or pool: sizes are height, width and channels."""
    shape = (1, *window, made[2]) if kind == "DEPTHWISE_CONV_2D" else (made[2], *window, given[2])
    size = shape[0] * shape[1] * shape[2] * shape[3]
    tensors = [T("x", (1, *given), dtype), T("y", (1, *made), dtype)]
    table = {"padding": 0 if same else 1, "strideH": stride, "strideW": stride}
    if kind == "AVERAGE_POOL_2D":
        op = O(kind, [0], [1], options("Pool2DOptions", filterHeight=window[0], filterWidth=window[1], **table))
    else:
        tensors.append(T("w", shape, weights, bytes(size)))
        name = "Conv2DOptions" if kind == "CONV_2D" else "DepthwiseConv2DOptions"
        more = {"dilationHFactor": 1, "dilationWFactor": 1}
        if kind == "DEPTHWISE_CONV_2D":
            more["depthMultiplier"] = made[2] // given[2]
        op = O(kind, [0, 2], [1], options(name, **table, **more))
    return parse(build(Sub(tensors, [op], [0], [1])))


def requested(model: FileModel, kernels: str) -> tuple[int, ...]:
    return scratch_requests(model, 0, 0, kernels)


@pytest.mark.parametrize(
    ("model", "plain", "dsp", "mve"),
    [
        # Two windows of 72 values of 16 bits; four, each in 5 vectors of 16 bytes.
        (layer("CONV_2D", (8, 8, 8), (3, 3), (8, 8, 4)), (288,), (288,), (320,)),
        # A window of 27 values is rounded up to 28, or to 32.
        (layer("CONV_2D", (8, 8, 3), (3, 3), (8, 8, 4)), (112,), (112,), (128,)),
        (layer("CONV_2D", (8, 8, 8), (1, 1), (8, 8, 4)), (), (), ()),
        (layer("CONV_2D", (8, 8, 8), (1, 1), (4, 4, 4), stride=2), (), (), ()),
        # A row: 3 taps of 4 channels, and one column of padding before them.
        (layer("CONV_2D", (1, 8, 4), (1, 3), (1, 8, 4)), (48,), (48,), (16,)),
        (layer("CONV_2D", (8, 8, 8), (3, 3), (8, 8, 4), dtype="INT16"), (288,), (288,), (576,)),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 16), (3, 3), (8, 8, 16)), (), (), (4464,)),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 16), (5, 5), (8, 8, 16)), (), (800,), (12400,)),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 4), (3, 3), (8, 8, 8)), (), (), ()),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 16), (3, 3), (8, 8, 16), weights="INT4"), (288,), (288,), (288,)),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 16), (5, 5), (8, 8, 16), dtype="INT16"), (), (), ()),
        (layer("AVERAGE_POOL_2D", (8, 8, 16), (2, 2), (4, 4, 16), stride=2), (), (64,), ()),
    ],
)
def test_scratch_of_cmsis_nn(
    model: FileModel, plain: tuple[int, ...], dsp: tuple[int, ...], mve: tuple[int, ...]
) -> None:
    assert tuple(requested(model, kernels) for kernels in ARM) == (plain, dsp, mve)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        # 9 x 16 values of a window, and of each of 16 filters; 16 sums; 32 to align.
        (layer("CONV_2D", (8, 8, 16), (3, 3), (8, 8, 16)), 17 * 144 + 64 + 32),
        # 24 bytes for each channel read, 8 for each made.
        (layer("CONV_2D", (8, 8, 16), (1, 1), (8, 8, 32)), 24 * 16 + 8 * 32 + 64),
        # Weights of more than 24 KB: 16 KB for a panel of what they make.
        (layer("CONV_2D", (8, 8, 256), (1, 1), (8, 8, 128)), 24 * 256 + 16384 + 64),
        # Rows of 9 bytes: whole windows of 27, rounded up to 32.
        (layer("CONV_2D", (8, 8, 3), (3, 3), (8, 8, 8)), 32 + 16 + 256 + 16 + 32 + 64),
        # The data with its padding, 6 x 6; 5 rows of 40 bytes, rounded up to 48, for each filter; a sum for each.
        (layer("CONV_2D", (2, 2, 8), (5, 5), (2, 2, 8)), 6 * 6 * 8 + 5 * 48 * 8 + 64 + 32),
        (layer("CONV_2D", (8, 8, 8), (5, 5), (4, 4, 8), same=False), 5 * 48 * 8 + 64 + 32),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 16), (3, 3), (8, 8, 16)), 144 + 10 * 10 * 16 + 16),
        # More than 40 KB: as many rows as fit.
        (layer("DEPTHWISE_CONV_2D", (48, 48, 32), (3, 3), (48, 48, 32)), 288 + 25 * 50 * 32 + 32),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 8), (3, 3), (8, 8, 8)), 2 * (72 + 512) + 32),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 1), (3, 3), (8, 8, 8)), 2 * (72 + 64) + 32),
        (layer("DEPTHWISE_CONV_2D", (16, 1, 16), (3, 1), (16, 1, 16)), 64 + 96 + 64),
        (layer("DEPTHWISE_CONV_2D", (8, 8, 3), (3, 3), (8, 8, 3)), 32),
    ],
)
def test_scratch_of_esp_nn(model: FileModel, size: int) -> None:
    assert requested(model, "esp-nn-s3") == (size,)
    assert requested(model, "esp-nn") == ()


def softmax() -> FileModel:
    return parse(build(Sub([T("x", (1, 12), "INT8"), T("y", (1, 12), "INT8")], [O("SOFTMAX", [0], [1])], [0], [1])))


def dense(rank: int, *, fixed: bool = True) -> FileModel:
    tensors = [T("x", (1,) * (rank - 1) + (8,), "INT8"), T("w", (10, 8), "INT8", bytes(80) if fixed else None)]
    tensors.append(T("y", (1,) * (rank - 1) + (10,), "INT8"))
    return parse(build(Sub(tensors, [O("FULLY_CONNECTED", [0, 1], [2])], [0] if fixed else [0, 1], [2])))


def kept(model: FileModel, kernels: str) -> int:
    return estimates(model, kernels)[32].persistent - estimates(model)[32].persistent


def test_other_layers() -> None:
    assert [requested(softmax(), kernels) for kernels in ("", *ARM, "esp-nn", "esp-nn-s3")] == [()] * 4 + [(48,)] * 2
    # Sums of weights: once for all where these are constant, for each run where they are not. 48 bytes of own data
    # are 72, so 80 of the arena; a request for scratch is a pointer.
    assert [requested(dense(2), kernels) for kernels in ARM] == [(), (), ()]
    assert [kept(dense(2), kernels) for kernels in ARM] == [32, 32, 32 + 48]
    assert requested(dense(2, fixed=False), "cmsis-nn-mve") == (40,)
    # As a pointwise convolution: a multiplier and a shift for each of 10 channels.
    assert [requested(dense(3), kernels) for kernels in ARM] == [(80,)] * 3


def test_what_is_not_known_of_such_kernels_is_said() -> None:
    model = parse(build(Sub([T("x", (2, 4)), T("y", (4, 2))], [O("TRANSPOSE", [0], [1])], [0], [1])))
    assert unknown_kernels(model) == unknown_kernels(model, "esp-nn-s3") == ()
    assert unknown_kernels(model, "cmsis-nn") == ("TRANSPOSE",)
    packed = layer("CONV_2D", (8, 8, 8), (3, 3), (8, 8, 4), weights="INT4")
    assert unknown_kernels(packed, "cmsis-nn-dsp") == unknown_kernels(packed, "esp-nn-s3") == ("CONV_2D",)
    assert unknown_kernels(packed) == ()
    assert kernel_set("litert") is kernel_set("") is REFERENCE


def test_scratch_is_laid_as_the_planner_does_and_counted() -> None:
    """MobileNetV2's peak is at a depthwise convolution: its vectors' scratch lies beside two tensors there."""
    path = MODELS / "mobilenetv2_035_96_int8.tflite"
    model = parse(path.read_bytes())
    scratch = kernel_scratch(model, "cmsis-nn-mve")
    assert predict(model, scratch).head == 138240 + round_up(4464)
    report = analyze(path, target="tflm-cmsis-nn-mve").report
    assert report["sections"]["requirement"]["parts"]["temporaries_bytes"] == 4464
    assert report["sections"]["requirement"]["parts"]["activations_bytes"] == 138240
    # 18 requests of 4 bytes, 32 more for the dense layer's own data, 40 for its sums; each end is rounded up.
    assert 66540 + 18 * 4 + 32 + 40 <= report["sections"]["requirement"]["parts"]["persistent_bytes"] <= 66540 + 160
    assert report["sections"]["requirement"]["bytes"] == 138240 + 4464 + estimates(model, "cmsis-nn-mve")[32].persistent
    needs = RelayRules(32, "cmsis-nn-mve").needs(path.read_bytes())
    assert needs.total(32) == report["sections"]["requirement"]["bytes"]
    assert "CMSIS-NN" in report["sections"]["firmware"]["assumptions"][0]
    assert {row["type"] for row in report["sections"]["firmware"]["scratch"]} >= {"CONV_2D", "DEPTHWISE_CONV_2D"}


@needs_tflm
@pytest.mark.parametrize("target", ["tflm-cmsis-nn", "tflm-cmsis-nn-mve", "tflm-esp-nn-s3"])
def test_files_for_such_kernels_run_on_the_reference_kernels_as_well(target: str) -> None:
    """The package measures its own kernels: what it shows is what is told of those."""
    data = (MODELS / "person_detect.tflite").read_bytes()
    report = compiler.optimize(data, target=target, level=2, tflm_plan=True, effort=0.1).report
    assert report["sections"]["verification"]["outputs_equal"]
    assert report["sections"]["verification"]["arena_after"]["as_predicted"]
    assert any("reference kernels" in note for note in report["verdict"]["notes"])
    assert report["sections"]["requirement"]["bytes"] < report["sections"]["requirement"]["given_bytes"]


def test_kernels_belong_to_their_planner(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    for text in ('kernels = "cmsis-nn"', 'extends = "tflm"\nkernels = "litert"'):
        path.write_text(text)
        with fails("contradiction", "board.toml", "'kernels'", "planner"):
            load_target(str(path))
    path.write_text('extends = "tflm-cmsis-nn"\nkernels = ""')
    assert load_target(str(path)).kernels == ""
