"""Reading ONNX: the sizes of tensors, and what must be stated where the file leaves them open."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest
from onnx import helper

from memsched.base.errors import UnknownShapeError, UsageError
from tests.failures import fails
from tests.formats.onnx_builder import FLOAT, INT64, constant, make, node, read, relu_chain, sizes, value


class TestShapes:
    def test_unknown_input_names_the_exact_option(self) -> None:
        model = make([node("Relu", "x", "y")], [value("x", ["N", 3])], [value("y", None)])
        with fails("unknown-shape", "'x'", "[N, 3]"):
            read(model)
        assert sizes(read(model, dims={"N": 5})) == {"x": 60, "y": 60}
        assert sizes(read(model, input_shapes={"x": (2, 3)})) == {"x": 24, "y": 24}

    @pytest.mark.parametrize(
        ("inputs", "options"),
        [
            ({"x": ["N", 3, "H", "W"]}, "--dim N=1 --dim H=224 --dim W=224"),
            ({"x": [None, 3, None, None]}, "--shape x=1,3,224,224"),
            ({"x": [None, None, None, 3]}, "--shape x=1,224,224,3"),
            ({"x": ["?", 3, "?", "?"]}, "--shape x=1,3,224,224"),
            ({"x": ["batch", "seq_len"], "m": ["batch", "seq_len"]}, "--dim batch=1 --dim seq_len=128"),
            ({"x": ["seq_len", 576]}, "--dim seq_len=128"),
            ({"x": ["unk__7", "unk__8"]}, "--dim unk__7=1 --dim unk__8=128"),
            ({"x": [None, None], "h": [2, None, 128]}, "--shape x=1,128 --shape h=2,1,128"),
            ({"x": [None, None, None]}, "--shape x=1,128,128"),
            ({"x": None}, "--shape x=1,128"),
        ],
    )
    def test_every_open_size_is_asked_for_at_once(self, inputs: dict[str, Any], options: str) -> None:
        """With usual lengths, so that the options can be pasted as they are."""
        nodes = [node("Relu", name, f"{name}y") for name in inputs]
        outputs = [value(f"{name}y", None) for name in inputs]
        model = make(nodes, [value(name, dims) for name, dims in inputs.items()], outputs)
        with fails("unknown-shape", options) as caught:
            read(model)
        assert isinstance(caught.value, UnknownShapeError)
        assert shlex.split(options) == list(caught.value.options)

    def test_all_computed_sizes_that_others_follow_from_are_named_at_once(self) -> None:
        nodes = [
            node("NonZero", "x", "n"),
            node("Transpose", "n", "y"),
            node("NonZero", "y", "m"),
            node("NonZero", "x", "k"),
        ]
        outputs = [value(name, None, INT64) for name in ("y", "m", "k")]
        with pytest.raises(UnknownShapeError) as caught:
            read(make(nodes, [value("x", [2, 5])], outputs))
        assert caught.value.computed == (("n", 1), ("k", 1))

    def test_shapes_that_pass_through_many_layers_are_followed_to_the_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each layer's shape is computed from that of the layer before, as PyTorch exports views."""
        monkeypatch.setattr("memsched.formats.onnx.symbolic.infer", lambda _: None)
        layers, nodes = 40, []
        constants = [constant("zero", 0), constant("one", 1), constant("at", [0]), constant("width", [4])]
        for number in range(layers):
            nodes.append(node("Shape", f"x{number}", f"shape{number}"))
            for axis in ("zero", "one"):
                nodes.append(node("Gather", f"shape{number} {axis}", f"{axis}{number}"))
                nodes.append(node("Unsqueeze", f"{axis}{number} at", f"{axis}s{number}"))
            nodes.append(node("Concat", f"zeros{number} ones{number} width", f"all{number}", axis=0))
            nodes.append(node("Reshape", f"x{number} all{number}", f"x{number + 1}"))
        model = make(nodes, [value("x0", ["N", "M", 4])], [value(f"x{layers}", None)], constants)
        assert sizes(read(model, dims={"N": 1, "M": 5000}))[f"x{layers}"] == 4 * 5000 * 4

    def test_a_name_for_everything_unknown_is_no_name(self) -> None:
        model = make([node("Relu", "x", "y")], [value("x", ["?", 3, "?", "?"])], [value("y", ["?", 3, "?", "?"])])
        module = read(model, input_shapes={"x": (1, 3, 6, 4)})
        assert sizes(module) == {"x": 288, "y": 288}
        assert any("'?'" in note for note in module.notes)

    def test_a_stated_input_shape_names_its_dimensions(self) -> None:
        model = make([node("Add", "x z", "y")], [value("x", ["N"]), value("z", ["N"])], [value("y", None)])
        assert sizes(read(model, input_shapes={"x": (6,)}))["z"] == 24

    def test_unnamed_dimensions_and_ranks(self) -> None:
        nameless = make([node("Relu", "x", "y")], [value("x", [None, 3])], [value("y", None)])
        with fails("unknown-shape", "'x'", "--shape x=1,3"):
            read(nameless)
        rankless = make([node("Relu", "x", "y")], [value("x", None)], [value("y", None)])
        with fails("unknown-shape", "'x'", "x=1,128"):
            read(rankless)
        assert sizes(read(rankless, input_shapes={"x": (2, 3)}))["y"] == 24
        minus_one = make([node("Relu", "x", "y")], [value("x", [-1, 3])], [value("y", None)])
        assert sizes(read(minus_one, input_shapes={"x": (2, 3)}))["y"] == 24

    def test_data_dependent_shapes_take_an_upper_bound(self) -> None:
        nodes = [node("NonZero", "x", "n"), node("Transpose", "n", "y")]
        model = make(nodes, [value("x", [2, 5])], [value("y", None, INT64)])
        with fails("unknown-shape", "'n'", "NonZero", "--shape", "--shapes-from-run"):
            read(model)
        assert sizes(read(model, input_shapes={"n": (2, 10)})) == {"x": 40, "n": 160, "y": 160}

    def test_custom_outputs_take_a_stated_shape_and_the_likely_type(self) -> None:
        nodes = [helper.make_node("Fuse", ["x"], ["a"], domain="my"), node("Relu", "a", "y")]
        model = make(nodes, [value("x", [4])], [value("y", None)], domains=["my"])
        with fails("unknown-shape", "my.Fuse"):
            read(model)
        module = read(model, input_shapes={"a": (3,)})
        assert sizes(module) == {"x": 16, "a": 12, "y": 12}
        assert any("'a'" in note for note in module.notes)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"input_shapes": {"x": (5, 4)}}, ("shape-differs", "--shape x", "1")),
            ({"input_shapes": {"x": (1, 4, 1)}}, ("shape-differs", "--shape x", "3 dimensions")),
            ({"input_shapes": {"a": (9, 9)}}, ("shape-differs", "--shape a", "1")),
            ({"input_shapes": {"no": (9, 9)}}, ("no-such-tensor", "--shape no")),
            ({"dims": {"N": 3}}, ("no-such-dimension", "--dim N")),
        ],
    )
    def test_statements_that_do_not_fit(self, options: dict[str, Any], expected: tuple[str, ...]) -> None:
        with fails(*expected, kind=UsageError):
            read(relu_chain(), **options)

    def test_contradicting_statements(self) -> None:
        model = make([node("Relu", "x", "y")], [value("x", ["N"])], [value("y", None)])
        with fails("stated-twice", "--shape x", "2"):
            read(model, dims={"N": 2}, input_shapes={"x": (3,)})

    def test_operators_win_over_contradicting_declarations(self) -> None:
        nodes = [node("Relu", "x", "a"), node("Relu", "a", "y")]
        module = read(make(nodes, [value("x", [2, 3])], [value("y", [9])], value_info=[value("a", [5, 3])]))
        assert sizes(module) == {"x": 24, "a": 24, "y": 24}
        assert [sum(f"'{name}'" in note for note in module.notes) for name in ("x", "a", "y")] == [0, 1, 1]

    def test_shape_arithmetic_is_carried_out(self) -> None:
        nodes = [
            node("Shape", "x", "s"),
            node("ReduceProd", "s", "p", keepdims=1),
            node("Constant", "", "two", value=constant("two", np.array([2], np.int64))),
            node("Div", "p two", "half"),
            node("Concat", "two half", "target", axis=0),
            node("Reshape", "x target", "r"),
            node("Transpose", "r", "y", perm=[1, 0]),
        ]
        module = read(make(nodes, [value("x", [3, 4])], [value("y", None)]))
        assert next(tensor for tensor in module.graph.tensors if tensor.name == "y").shape == (6, 2)
        assert [op.type for op in module.graph.ops][:2] == ["Shape", "ReduceProd"]

    def test_huge_ranges_are_not_computed(self) -> None:
        nodes = [node("Range", "zero n one", "r"), node("Cast", "r", "f", to=FLOAT), node("Add", "x f", "y")]
        weights = [constant(name, np.array(number)) for name, number in (("zero", 0), ("n", 1 << 40), ("one", 1))]
        module = read(make(nodes, [value("x", [1])], [value("y", None)], weights))
        assert sizes(module)["y"] == 4 << 40

    def test_large_constants_do_not_reach_the_inference(self) -> None:
        big = constant("big", np.ones((1000, 10), np.float32))
        nodes = [node("Constant", "", "k", value=big), node("MatMul", "x k", "a"), node("MatMul", "a w", "y")]
        model = make(nodes, [value("x", [2, 1000])], [value("y", None)], [constant("w", np.ones((10, 300), "f"))])
        module = read(model)
        assert sizes(module) == {"x": 8000, "a": 80, "y": 2400}
        assert module.weights_bytes == 40000 + 12000
