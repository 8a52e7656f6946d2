"""Sizes that a TFLite file leaves open: LiteRT computes them rightly or refuses them, whatever was rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ai_edge_litert.interpreter import Interpreter

from memsched.commands.optimize.optimize import optimize
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import metadata, rewriter, writer
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.open_sizes import fixed_dimensions, open_axes, with_guards
from memsched.rewrites.algebra.apply import identities
from memsched.rewrites.recompute.rewrite import rematerialise
from memsched.runtimes.litert import verification
from memsched.runtimes.litert.probe import probe
from tests.bordered_nets import bordered_net
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options, pack, unpack
from tests.open_batches import MODES, fate, outputs_at, with_open_batch
from tests.rewrites.algebra import nets
from tests.rewrites.tile import test_loop
from tests.rewrites.tile.looped_nets import looped_net


def read(data: bytes) -> Module:
    return load_module(data, "given.tflite", LoadOptions())


def guarded(given: Module, written: bytes) -> bytes:
    return with_guards(given, read(written), written)


def at_batch(data: bytes, batch: int) -> list[tuple[int, ...]]:
    main = parse(data).subgraphs[0]
    return [(batch, *main.tensors[number].shape[1:]) for number in main.inputs]


def fates(given: bytes, written: bytes) -> set[str]:
    """Return what becomes of ``written`` at two other batches, without delegates and with those of LiteRT itself."""
    assert {fate(given, written, mode, at_batch(given, 1)) for mode in MODES} == {"equal"}
    return {fate(given, written, mode, at_batch(given, batch)) for mode in MODES for batch in (2, 3)}


def arenas(data: bytes) -> list[int | None]:
    found = []
    for mode in MODES:
        interpreter = Interpreter(model_content=data, experimental_op_resolver_type=mode)
        operators = interpreter._interpreter.NumNodes()
        interpreter.allocate_tensors()
        interpreter.invoke()
        found.append(probe(interpreter, operators).arena_bytes)
    return found


def closed(data: bytes) -> bytes:
    """Return a model whose signatures state all sizes, as a rewrite leaves them."""
    model = unpack(data)
    for tensor in model.subgraphs[0].tensors:
        tensor.shapeSignature = None
    return pack(model)


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT32"])
@pytest.mark.parametrize(
    ("shape", "signature", "others"),
    [
        ((1, 4, 6, 3), (-1, 4, 6, 3), [(2, 4, 6, 3), (5, 4, 6, 3)]),
        ((2, 4, 6, 3), (-1, -1, -1, 3), [(1, 4, 6, 3), (2, 8, 3, 3), (2, 4, 8, 3), (4, 4, 3, 3)]),
        ((1, 4, 6, 3), (1, -1, -1, -1), [(1, 4, 6, 6), (1, 8, 6, 3), (1, 4, 3, 3)]),
        ((2, 8), (-1, -1), [(4, 4), (2, 16), (3, 8)]),
        ((32,), (-1,), [(16,), (64,)]),
    ],
)
def test_a_guard_refuses_all_other_sizes_and_takes_no_memory(
    dtype: str, shape: Sequence[int], signature: Sequence[int], others: Sequence[Sequence[int]]
) -> None:
    ends = [T(name, shape, dtype, signature=signature) for name in "xy"]
    given = build(Sub(ends, [O("NEG", [0], [1])], outputs=[1]))
    written = with_guards(read(given), read(given), closed(given))
    assert fixed_dimensions(read(given), written) == {
        f"x[{axis}]": shape[axis] for axis, size in enumerate(signature) if size == -1
    }
    assert arenas(written) == arenas(given)
    for mode in MODES:
        assert fate(given, written, mode, [shape]) == "equal"
        assert {fate(given, closed(given), mode, [other]) for other in others} == {"equal"}
        for other in others:
            with pytest.raises(RuntimeError, match="GATHER"):
                outputs_at(written, mode, [other])


@pytest.fixture(scope="module")
def given() -> bytes:
    return with_open_batch(looped_net(0))


@pytest.fixture(scope="module")
def tiled(given: bytes) -> Any:
    return optimize(given, target="litert-reference", level=2, max_extra_macs=60, effort=1, control_dependencies=True)


def test_a_tiled_file_is_refused_at_other_batches(given: bytes, tiled: Any) -> None:
    assert tiled.report["sections"]["tile"]["applied"]
    assert fates(given, tiled.model) == {"refused"}
    assert open_axes(parse(given)) == ((0,),)
    assert open_axes(parse(tiled.model)) == ((),)
    assert tiled.report["output"]["fixed_dimensions"] == [{"dimension": "t0[0]", "size": 1}]
    (tried,) = tiled.report["sections"]["verification"]["other_sizes"]
    assert (tried["dimension"], tried["size"], tried["outcome"]) == ("t0[0]", 2, "refused")
    assert "GATHER" in tried["reason"]
    interpreter = Interpreter(model_content=tiled.model)
    with pytest.raises(RuntimeError, match="Strict"):
        interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], at_batch(given, 2)[0], strict=True)


def test_a_batch_that_is_stated_is_refused_as_well() -> None:
    """LiteRT resizes such an input, unless the caller asks it to be strict."""
    given = looped_net(0)
    found = optimize(given, target="litert-reference", level=2, max_extra_macs=60, effort=1, verify=False)
    assert found.model != given
    assert fates(given, found.model) == {"refused"}


def test_a_guard_keeps_the_order_that_delegates_are_told(tiled: Any) -> None:
    model = parse(tiled.model)
    count = len(model.subgraphs[0].operators)
    stated = metadata.control_dependencies(model)
    assert stated is not None
    assert metadata.is_chain(stated[0], count)
    assert model.subgraphs[0].operators[0].type == "GATHER"
    # A file with a guard is read and written like any other.
    assert writer.serialize(read(tiled.model), {}) == tiled.model


def test_channels_in_pieces_are_right_at_every_batch(given: bytes) -> None:
    found = optimize(given, target="tflm", level=2, max_extra_macs=60, effort=1, verify=False)
    assert [group["axis_names"] for group in found.report["sections"]["tile"]["groups"]] == [["channels"]]
    assert open_axes(parse(found.model)) == ((0,),)
    assert fates(given, found.model) == {"equal"}


def test_what_firmware_runs_has_no_guard() -> None:
    """TensorFlow Lite Micro resizes nothing, and a firmware may have no GATHER."""
    given = with_open_batch(looped_net(3))
    found = optimize(given, target="tflm", level=2, max_extra_macs=60, effort=1, verify=False)
    kinds = {operator.type for operator in parse(found.model).subgraphs[0].operators}
    assert found.report["sections"]["tile"]["applied"]
    assert "GATHER" not in kinds
    assert open_axes(parse(found.model)) == ((),)


def halves(signature: Sequence[int] | None) -> bytes:
    """Return a model that joins its halves again, both of them for one batch."""
    numbers = {"zero": (0, 0), "half": (0, 2), "sizes": (1, 2)}
    tensors = [
        T("x", (1, 4), signature=signature),
        *(T(name, (2,), "INT32", int32s(*values)) for name, values in numbers.items()),
        *(T("a", (1, 2)), T("b", (1, 2)), T("joined", (1, 4)), T("y", (1, 4))),
    ]
    ops = [O("SLICE", [0, 1, 3], [4]), O("SLICE", [0, 2, 3], [5])]
    ops += [O("CONCATENATION", [4, 5], [6], options("ConcatenationOptions", axis=1)), O("NEG", [6], [7])]
    return build(Sub(tensors, ops, outputs=[7]))


def negated() -> bytes:
    return with_open_batch(build(Sub([T("x", (1, 4)), T("y", (1, 4))], [O("NEG", [0], [1])], outputs=[1])))


def test_a_file_that_drops_batches_is_found_out() -> None:
    assert fates(negated(), halves((-1, 4))) == {"wrong"}
    ((size,), _) = verification.try_other_sizes(negated(), halves((-1, 4)))
    assert (size.dimension, size.size, size.outcome) == ("x[0]", 2, "wrong")
    assert all(shape in (size.reason or "") for shape in ("[1, 4]", "[2, 4]"))


def test_a_signature_that_states_sizes_refuses_strict_callers() -> None:
    ((size,), _) = verification.try_other_sizes(negated(), halves(None))
    assert size.outcome == "refused"
    assert "strict" in (size.reason or "")


@pytest.mark.parametrize("kind", [{}, {"unrolled": True}, {"joined": True}])
def test_loops_are_refused_at_other_batches(kind: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_loop, "looped_net", lambda seed, **how: with_open_batch(looped_net(seed, **how)))
    count = 0
    for seed in range(3):
        given, made, _ = test_loop._looped(seed, **{"unrolled": False, **kind})
        for written in made:
            assert fates(given, guarded(read(given), written)) == {"refused"}
            count += 1
    assert count > 4


def test_random_networks_in_tiles_are_never_wrong() -> None:
    seen: Counter[str] = Counter()
    for seed in (1, 3):
        given = with_open_batch(looped_net(seed))
        found = optimize(given, target="litert-reference", level=2, max_extra_macs=60, effort=1, verify=False)
        seen.update(fates(given, found.model) if found.model != given else ())
    assert "wrong" not in seen
    assert seen["refused"]


def cropped_twice() -> bytes:
    """Return a model with a SLICE that takes all of the batch, of which a copy is written."""
    tensors = [
        *(T("x", (1, 4, 6)), T("begin", (3,), "INT32", int32s(0, 1, 0)), T("size", (3,), "INT32", int32s(-1, 2, -1))),
        *(T("a", (1, 2, 6)), T("b", (1, 2, 6)), T("y", (1, 2, 6))),
    ]
    ops = [O("SLICE", [0, 1, 2], [3]), O("EXP", [3], [4]), O("ADD", [4, 3], [5], options("AddOptions"))]
    return with_open_batch(build(Sub(tensors, ops, outputs=[5])))


def test_values_computed_again_are_right_at_every_batch() -> None:
    given = cropped_twice()
    module = read(given)
    graph = rematerialise(module.graphs[0], [0, 1, 0, 2], rewriter.dialect(module)).graph
    written = guarded(module, rewriter.serialize(module, graph, range(4)))
    assert [operator.type for operator in parse(written).subgraphs[0].operators] == ["SLICE", "EXP", "SLICE", "ADD"]
    assert open_axes(parse(written)) == ((0,),)
    assert fates(given, written) == {"equal"}


def test_equal_expressions_are_never_wrong() -> None:
    given = with_open_batch(nets.tflite_net())
    module, draft = nets.drafted(given)
    changed, way = nets.closed(draft, sorted({one.kind for one in identities(replace(draft, sums=True))}))
    assert way
    assert "wrong" not in fates(given, guarded(module, nets.written(module, changed)))


@pytest.mark.parametrize("seed", [0, 2])
def test_another_border_is_right_at_every_batch(seed: int) -> None:
    given = with_open_batch(bordered_net(seed))
    found = optimize(given, target="litert", allow=("reorder", "inplace", "io"), effort=1)
    assert found.model != given
    assert [one["outcome"] for one in found.report["sections"]["verification"]["other_sizes"]] == ["equal"]
    assert found.report["output"]["fixed_dimensions"] == []


def test_another_order_is_right_at_every_batch() -> None:
    shape = (1, 8)
    tensors = [T(name, shape) for name in "xabcy"]
    ops = [O("EXP", [0], [1]), O("NEG", [0], [2]), O("ADD", [1, 2], [3], options("AddOptions")), O("TANH", [3], [4])]
    given = with_open_batch(build(Sub(tensors, ops, outputs=[4])))
    written = writer.serialize(read(given), {0: [1, 0, 2, 3]})
    assert written != given
    assert open_axes(parse(written)) == ((0,),)
    assert fates(given, written) == {"equal"}


def test_sizes_that_the_model_refuses_are_said_to_be_untried() -> None:
    """A RESHAPE that states the batch refuses others by itself."""
    tensors = [T("x", (1, 4, 6)), T("shape", (2,), "INT32", int32s(1, 24)), T("y", (1, 24))]
    given = with_open_batch(build(Sub(tensors, [O("RESHAPE", [0, 1], [2])], outputs=[2])))
    sizes, notes = verification.try_other_sizes(given, given)
    assert sizes == ()
    assert [note for note in notes if "x[0]" in note]
