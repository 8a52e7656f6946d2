"""Layers left to built-in kernels: the same values, read by the kernel that keeps no padded weights, and permitted."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import memsched
from memsched.base.errors import InternalError
from memsched.check.rewrite import check_made_constants
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import made_constants
from memsched.formats.tflite.made_constants import with_made_constants
from memsched.formats.tflite.open_sizes import first_stated_axis, fixed_dimensions
from memsched.lowering.prices import Avoidable
from memsched.lowering.xnnpack import avoidable, packed_bytes, table_bytes
from memsched.runtimes.compare import within_own
from memsched.runtimes.litert.default_interpreter import DefaultInterpreter
from memsched.runtimes.litert.verification import try_other_sizes, verify
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.formats.tflite_networks import classifier, segmenter
from tests.rewrites.algebra.test_bands import layer
from tests.suites import Draws

ROUNDING: dict[str, Any] = {"target": "litert", "may_change": ["rounding"], "effort": 0.2}


def read(data: bytes) -> Module:
    return load_module(data, "model.tflite", LoadOptions())


def places(module: Module) -> dict[str, int]:
    """Return the layers for which the delegate keeps more than it need, each with the input that leaves it alone."""
    found = {op.name: avoidable(module.graph, op) for op in module.graph.ops}
    return {name: one.place for name, one in found.items() if one is not None}


def kernels(result: memsched.OptimizeResult) -> int:
    """Return how many layers were left to built-in kernels."""
    section = result.report.values.sections.algebra
    return 0 if section is None else sum(row.kind == "kernel" for row in section.identities)


def resized(rng: random.Random) -> bytes:
    """Return a bilinear resize between two operators of one element."""
    dtype = rng.choice(["FLOAT32", "INT8"])
    read, made = ([rng.randrange(2, 20), rng.randrange(2, 20)] for _ in range(2))
    ends: dict[str, Any] = {"scales": (0.1,) if dtype == "INT8" else (), "dtype": dtype}
    depth = rng.choice([1, 3, 8])
    shapes = [(1, *read, depth)] * 2 + [(1, *made, depth)] * 2
    tensors = [T(f"t{place}", shape, **ends) for place, shape in enumerate(shapes)]
    tensors.append(T("size", (2,), "INT32", np.array(made, np.int32).tobytes()))
    way = rng.choice([{}, {"alignCorners": True}, {"halfPixelCenters": True}])
    resize = O("RESIZE_BILINEAR", [1, 4], [2], options("ResizeBilinearOptions", **way))
    return build(Sub(tensors, [O("RELU", [0], [1]), resize, O("RELU", [2], [3])], [0], [3]))


def random_layer(rng: random.Random) -> bytes:
    """Return a layer for which the delegate keeps more than it need."""
    if rng.random() < 0.3:
        return resized(rng)
    kernel = rng.choice([(7, 7), (6, 5), (1, 31), (27, 1), (9, 4)])
    dilation = rng.choice([1, 1, 2])
    sizes = [(width - 1) * dilation + 1 + rng.randrange(9) for width in kernel]
    return layer(
        (sizes[0], sizes[1], rng.choice([1, 3, 16, 20])),
        kernel,
        strides=(1, 1) if dilation > 1 else rng.choice([(1, 1), (2, 2), (3, 1)]),
        dilations=(dilation, dilation),
        same=rng.random() < 0.5,
        depthwise=True,
        dtype=rng.choice(["FLOAT32", "INT8"]),
    )


def outputs_of(data: bytes, size: int, *, delegates: bool) -> Any:
    """Return what LiteRT makes of random inputs with so many more rows."""
    resolver = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=resolver)
    (given,), rng = interpreter.get_input_details(), np.random.default_rng(5)
    shape = [one + size * (axis == 1) for axis, one in enumerate(given["shape"])]
    interpreter.resize_tensor_input(given["index"], shape)
    interpreter.allocate_tensors()
    values = rng.standard_normal(shape) * (1 if given["dtype"] == np.float32 else 40) + 40
    interpreter.set_tensor(given["index"], values.astype(given["dtype"]))
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_random_layers_have_the_bits_of_built_in_kernels_at_every_size(draws: Draws) -> None:
    for seed in range(draws(8, 300)):
        data = random_layer(random.Random(seed))
        given = read(data)
        op = given.graph.ops[1]
        kept = table_bytes(given.graph, op) + packed_bytes(given.graph, op)
        assert avoidable(given.graph, op) == Avoidable(kept, 1 if op.type == "RESIZE_BILINEAR" else 2)
        made = with_made_constants(given, places(given))
        again = read(made).graph
        check_made_constants(given.graph, again, [op.name])
        assert not avoidable(again, again.ops[1])
        assert table_bytes(again, again.ops[1]) == packed_bytes(again, again.ops[1]) == 0
        for size in (0, 5):
            expected = outputs_of(data, size, delegates=False)
            for delegates in (False, True):
                # The delegate takes what stands around the layer, which rounds nothing.
                assert np.array_equal(outputs_of(made, size, delegates=delegates), expected)


def test_batches_stay_open() -> None:
    data = classifier(32, 8, any_batch=True)
    given = read(data)
    made = with_made_constants(given, places(given))
    assert fixed_dimensions(given, made) == {}
    assert first_stated_axis(read(made).graph, given.graph) is None
    [size] = try_other_sizes(data, made, kernels=True)[0]
    assert (size.dimension, size.outcome) == ("t0[0]", "equal")


def test_only_what_was_planned_may_be_made_by_an_op() -> None:
    given = read(classifier(32, 8))
    names = list(places(given))
    written = read(with_made_constants(given, {names[0]: 2})).graph
    for wrong in (names[:2], names[1:2], []):
        with pytest.raises(InternalError):
            check_made_constants(given.graph, written, wrong)


@pytest.fixture(scope="module")
def rounded() -> memsched.OptimizeResult:
    return memsched.optimize(classifier(48, 8), **ROUNDING)


def test_a_classifier_takes_less_with_built_in_kernels(rounded: memsched.OptimizeResult) -> None:
    data = classifier(48, 8)
    sections = rounded.report.values.sections
    assert rounded.report.values.verdict.outputs in {"bit_equal", "close"}
    assert sections.algebra is not None
    assert not sections.algebra.exact
    assert kernels(rounded) == 7
    assert sections.interpreter is not None
    assert sections.interpreter.written is not None
    assert 2 * sections.interpreter.written.private_bytes < sections.interpreter.given.private_bytes
    predicted = rounded.report.values.verdict.bytes
    found = DefaultInterpreter().compare(data, rounded.model, seed=0, slowdown=None)
    assert not isinstance(found, str)
    assert found.written.private_bytes == pytest.approx(predicted, rel=0.05, abs=300_000)
    plain, default = verify(data, rounded.model), verify(data, rounded.model, kernels=True)
    assert plain.outputs_equal or default.own_error is not None
    # Without delegates nothing differs.
    assert np.array_equal(outputs_of(data, 0, delegates=False), outputs_of(rounded.model, 0, delegates=False))


def test_a_segmenter_takes_less_without_the_table_of_its_resize() -> None:
    result = memsched.optimize(segmenter(129, 8), **ROUNDING)
    section = result.report.values.sections.interpreter
    assert kernels(result) == 1
    assert section is not None
    assert section.written is not None
    assert section.written.private_bytes < 0.9 * section.given.private_bytes
    assert result.report.values.sections.verification is not None
    assert result.report.values.sections.verification.outputs_vary


def test_without_permission_the_gain_is_named_alone() -> None:
    words = ("optimize", "model.tflite", "--target", "litert", "--effort", "5")
    data = classifier(48, 8)
    hooks = memsched.Hooks(words=words)
    result = memsched.optimize(data, hooks=hooks, target="litert", effort=5.0)
    assert result.report.values.verdict.outputs == "bit_equal"
    [row] = [one for one in result.report.values.alternatives if one.changes == ("rounding",)]
    assert row.command == "memsched optimize model.tflite --target litert --effort 5 --may-change rounding"
    assert 2 * row.bytes < result.report.values.verdict.bytes


def test_the_command_that_an_analysis_prints_leaves_layers_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(classifier(32, 8))
    words = ("analyze", str(path), "--target", "litert")
    report = memsched.analyze(path, hooks=memsched.Hooks(words=words), target="litert", effort=5.0).report.values
    [row] = [one for one in report.alternatives if one.changes == ("rounding",)]
    _, command, _, *options = shlex.split(row.command)
    assert (command, options[:3]) == ("optimize", ["--target", "litert", "--allow"])
    assert kernels(memsched.optimize(path, target="litert", allow=options[3].split(","), effort=0.2))


def test_biases_of_other_values_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with delegates is lenient; that without them is not."""
    write = with_made_constants

    def wrong(module: Module, ops: Any) -> bytes:
        bias = module.native.model.subgraphs[0].tensors
        buffer = next(one for one in bias if one.name.startswith("b") and one.dtype == "int32")
        data = bytearray(write(module, ops))
        place = module.native.model.buffers[buffer.buffer]
        at = len(data) - len(module.native.model.data) + place.start
        data[at : at + place.size] = np.full(place.size // 4, 3000, np.int32).tobytes()
        return bytes(data)

    monkeypatch.setattr(made_constants, "with_made_constants", wrong)
    data = classifier(32, 8)
    assert not kernels(memsched.optimize(data, **ROUNDING))
    monkeypatch.undo()
    assert kernels(memsched.optimize(data, **ROUNDING))


def test_what_two_sets_of_kernels_explain() -> None:
    def int8(*values: int) -> Any:
        return np.array(values, np.int8)

    def floats(*values: float) -> Any:
        return np.array(values, np.float32)

    given, other = [int8(1, 2), floats(1, 2)], [int8(1, 5), floats(1, 2.5)]
    assert within_own(given, other, [int8(7, -4), floats(2, 2)], 2)
    assert not within_own(given, other, [int8(8, 2), floats(1, 2)], 2)
    assert not within_own(given, other, [int8(1, 2), floats(2.1, 2)], 2)
    assert not within_own(given, other, [int8(1, 2), floats(np.nan, 2)], 2)
    # Kernels that agree explain one level of integers, and nothing of floats.
    assert within_own(given, given, [int8(2, 1), floats(1, 2)], 2)
    assert not within_own(given, given, [int8(3, 2), floats(1, 2)], 2)
    assert not within_own(given, given, [int8(1, 2), floats(1, 2.0001)], 2)
    assert not within_own(given, given, [int8(1, 2)], 2)
