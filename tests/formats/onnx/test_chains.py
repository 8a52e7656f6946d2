"""Which operators are found to be an activation, however it is written, and which only look like one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.commands.optimize.fuse import ChainRewrite
from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.rewrite import RewriteBase
from memsched.formats.capabilities import ActivationChains
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions
from memsched.graph.chain import Chain
from memsched.plan.rewrite import read_back
from memsched.runtimes.runtime import Opening
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target

SHAPE = (2, 3, 5)
CLOSE = 1e-5
ROOT = math.sqrt(2)
WAVE = math.sqrt(2 / math.pi)


class Net:
    """A model of one input and one output, written operator by operator; x is an operator's output."""

    def __init__(self, opset: int = 17, shape: Sequence[int | str] = SHAPE, kind: int = TensorProto.FLOAT) -> None:
        self.nodes: list[Any] = [helper.make_node("Neg", ["given"], ["x"], "first")]
        self.constants: list[Any] = []
        self.inputs = [helper.make_tensor_value_info("given", kind, shape)]
        self.outputs: list[Any] = []
        self.opset, self.shape, self.kind = opset, shape, kind

    def __call__(self, op: str, *reads: str | float, **attributes: Any) -> str:
        """Add an operator, whose output is returned; numbers become constants."""
        made = f"t{len(self.nodes)}"
        names = [one if isinstance(one, str) else self.constant(one) for one in reads]
        self.nodes.append(helper.make_node(op, names, [made], f"{op}_{made}", **attributes))
        return made

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        dtype = dtype or helper.tensor_dtype_to_np_dtype(self.kind)
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def returns(self, *names: str) -> bytes:
        """Return the model, whose outputs these are."""
        outputs = [helper.make_tensor_value_info(name, self.kind, None) for name in names]
        graph = helper.make_graph(self.nodes, "net", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def chains(data: bytes, **options: Any) -> tuple[Chain, ...]:
    module = load_module(data, "net.onnx", LoadOptions(**options))
    return capability(module, ActivationChains).chains(module)


def fused(data: bytes) -> tuple[bytes, tuple[Chain, ...]]:
    """Return a model with an operator for each chain, as it is written before orders are sought, and the chains."""
    options = LoadOptions()
    module = load_module(data, "net.onnx", options)
    found = capability(module, ActivationChains).chains(module)
    prepared = prepare(module, load_target("onnxruntime"), in_place=True)
    request = Request(Run.of(Limits(None, 0, effort=0.1), 0.0), "file", 1, Opening("session"), math.inf)
    base = RewriteBase(module, prepared, place(module, prepared, request), options)
    proposed = [one for one in ChainRewrite().candidates(base, request.run) if one is not None and one.way]
    (point,) = proposed
    graph = point.ways.build(point.way)
    return read_back(module, graph, options, prepared.target)[1], found


def sigmoid_gate(net: Net) -> str:
    return net("Mul", "x", net("Sigmoid", "x"))


def sigmoid_gate_first(net: Net) -> str:
    return net("Mul", net("Sigmoid", "x"), "x")


def scaled_gate(net: Net) -> str:
    return net("Mul", "x", net("Sigmoid", net("Mul", 1.702, "x")))


def divided_gate(net: Net) -> str:
    return net("Mul", "x", net("Sigmoid", net("Div", "x", 0.5)))


def gate_by_exp(net: Net) -> str:
    return net("Div", "x", net("Add", 1.0, net("Exp", net("Neg", "x"))))


def gate_by_tanh(net: Net) -> str:
    return net("Mul", net("Mul", "x", 0.5), net("Add", net("Tanh", net("Mul", "x", 0.5)), 1.0))


def gelu(net: Net) -> str:
    curve = net("Add", net("Erf", net("Div", "x", ROOT)), 1.0)
    return net("Mul", net("Mul", "x", curve), 0.5)


def gelu_half_first(net: Net) -> str:
    half = net("Mul", "x", 0.5)
    return net("Mul", half, net("Add", 1.0, net("Erf", net("Mul", "x", 1 / ROOT))))


def gelu_rounded(net: Net) -> str:
    """Some exporters write the root of two with few digits."""
    curve = net("Add", net("Erf", net("Div", "x", 1.4142135)), 1.0)
    return net("Mul", "x", net("Mul", curve, 0.5))


def gelu_by_tanh(net: Net) -> str:
    cube = net("Mul", net("Pow", "x", 3.0), 0.044715)
    curve = net("Tanh", net("Mul", net("Add", "x", cube), WAVE))
    return net("Mul", net("Mul", "x", 0.5), net("Add", curve, 1.0))


def gelu_by_products(net: Net) -> str:
    square = net("Mul", net("Mul", 0.044715, "x"), "x")
    curve = net("Tanh", net("Mul", net("Mul", "x", WAVE), net("Add", square, 1.0)))
    return net("Mul", "x", net("Add", net("Mul", curve, 0.5), 0.5))


QUICK, GELU, FAST = "com.microsoft.QuickGelu", "com.microsoft.Gelu", "com.microsoft.FastGelu"
FORMS: list[tuple[Callable[[Net], str], str, float | None]] = [
    (sigmoid_gate, QUICK, 1.0),
    (sigmoid_gate_first, QUICK, 1.0),
    (scaled_gate, QUICK, 1.702),
    (divided_gate, QUICK, 2.0),
    (gate_by_exp, QUICK, 1.0),
    (gate_by_tanh, QUICK, 1.0),
    (gelu, GELU, None),
    (gelu_half_first, GELU, None),
    (gelu_rounded, GELU, None),
    (gelu_by_tanh, FAST, None),
    (gelu_by_products, FAST, None),
]


def same_in_sessions(before: bytes, after: bytes, spread: float, seed: int) -> None:
    """Assert that both models make the same of numbers up to ``spread``, in a session without options and in one as
    it is written.
    """
    values = np.random.default_rng(seed).uniform(-spread, spread, SHAPE).astype(np.float32)
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        opened = [
            onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]) for data in (before, after)
        ]
        for one, other in zip(*(session.run(None, {"given": values}) for session in opened), strict=True):
            assert np.all(np.abs(one - other) <= CLOSE * np.maximum(1, np.abs(one)))


@pytest.mark.parametrize(("form", "kind", "alpha"), FORMS, ids=lambda one: getattr(one, "__name__", None))
@pytest.mark.parametrize("opset", [13, 20])
def test_each_form_is_found_and_computes_the_same(
    form: Callable[[Net], str], kind: str, alpha: float | None, opset: int
) -> None:
    net = Net(opset)
    made = form(net)
    data = net.returns(net("Neg", made))
    written, (chain,) = fused(data)
    stated = dict(chain.attributes)
    if kind != QUICK and opset >= 20:
        # The operator set has it, so that any runtime takes the file.
        assert (chain.type, stated) == ("Gelu", {} if kind == GELU else {"approximate": "tanh"})
    else:
        assert chain.type == kind
        assert (alpha is None and not stated) or stated["alpha"] == pytest.approx(alpha, rel=1e-6)
    assert (chain.read, chain.made) == ("x", made)
    assert chain.ops == tuple(node.name for node in net.nodes[1:-1])
    for spread in (1.0, 30.0):
        same_in_sessions(data, written, spread, seed=opset)


def test_each_activation_of_several_is_found_once() -> None:
    net = Net()
    one = sigmoid_gate(net)
    net.nodes[1:] = [
        helper.make_node(node.op_type, node.input, node.output, f"a_{node.name}") for node in net.nodes[1:]
    ]
    other = net("Mul", one, net("Sigmoid", one))
    data = net.returns(net("Neg", other))
    written, found = fused(data)
    assert [(chain.read, chain.made) for chain in found] == [("x", one), (one, other)]
    same_in_sessions(data, written, 8.0, seed=1)


def test_a_chain_that_goes_on_with_nothing_is_found_once() -> None:
    net = Net()
    made = sigmoid_gate(net)
    data = net.returns(net("Div", net("Mul", made, 1.0), 1.0))
    assert [chain.made for chain in chains(data)] == [made]


def test_dimensions_may_have_a_name_for_each_tensor() -> None:
    """As some converters write them; what each element is computed from alone is as large as that."""
    net = Net(shape=("batch", 3, 5))
    model = onnx.load_from_string(net.returns(net("Neg", gelu(net))))
    for number, node in enumerate(model.graph.node):
        shape = (f"unk__{number}", 3, 5)
        model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape))
    dims = {f"unk__{number}": 2 for number in range(len(model.graph.node))}
    assert len(chains(model.SerializeToString(), dims={"batch": 2, **dims})) == 1


def test_constants_may_be_nodes_of_any_shape_that_leaves_the_tensor_s() -> None:
    net = Net()
    net.nodes.append(helper.make_node("Constant", [], ["root"], "root", value_float=ROOT))
    curve = net("Add", net("Erf", net("Div", "x", "root")), net.constant([[1.0]]))
    data = net.returns(net("Mul", net("Mul", "x", curve), 0.5))
    written, (chain,) = fused(data)
    assert chain.type == GELU
    same_in_sessions(data, written, 5.0, seed=2)


def test_open_dimensions_stay_open() -> None:
    net = Net(shape=("batch", 3, 5))
    data = net.returns(net("Neg", gelu(net)))
    (chain,) = chains(data, dims={"batch": 2})
    assert chain.type == GELU
    assert len(chain.ops) == 5


def read_elsewhere(net: Net) -> bytes:
    gate = net("Sigmoid", "x")
    return net.returns(net("Add", net("Mul", "x", gate), net("Neg", gate)))


def returned(net: Net) -> bytes:
    gate = net("Sigmoid", "x")
    return net.returns(net("Mul", "x", gate), gate)


def read_in_a_branch(net: Net) -> bytes:
    gate = net("Sigmoid", "x")
    made = net("Mul", "x", gate)
    net.inputs.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, SHAPE)],
        )
        for name in (gate, made)
    ]
    return net.returns(net("If", "which", then_branch=branches[0], else_branch=branches[1]))


def another_gate(net: Net) -> bytes:
    return net.returns(net("Mul", "x", net("Sigmoid", net("Neg", "given"))))


def another_scale(net: Net) -> bytes:
    curve = net("Add", net("Erf", net("Div", "x", 1.41)), 1.0)
    return net.returns(net("Mul", net("Mul", "x", curve), 0.5))


def another_half(net: Net) -> bytes:
    curve = net("Add", net("Erf", net("Div", "x", ROOT)), 1.0)
    return net.returns(net("Mul", net("Mul", "x", curve), 0.51))


def another_cube(net: Net) -> bytes:
    cube = net("Mul", net("Pow", "x", 3.0), 0.0455)
    curve = net("Tanh", net("Mul", net("Add", "x", cube), WAVE))
    return net.returns(net("Mul", net("Mul", "x", 0.5), net("Add", curve, 1.0)))


def another_power(net: Net) -> bytes:
    cube = net("Mul", net("Pow", "x", 2.0), 0.044715)
    curve = net("Tanh", net("Mul", net("Add", "x", cube), WAVE))
    return net.returns(net("Mul", net("Mul", "x", 0.5), net("Add", curve, 1.0)))


def shifted(net: Net) -> bytes:
    return net.returns(net("Mul", "x", net("Sigmoid", net("Add", "x", 0.001))))


def a_scale_for_each_channel(net: Net) -> bytes:
    return net.returns(net("Mul", "x", net("Sigmoid", net("Mul", "x", net.constant(np.linspace(1, 2, 5))))))


def another_shape(net: Net) -> bytes:
    """A constant of more dimensions adds them to what is made."""
    return net.returns(net("Mul", "x", net("Sigmoid", net("Mul", "x", net.constant([[[[1.702]]]])))))


def a_constant_that_callers_may_change(net: Net) -> bytes:
    name = net.constant(1.702)
    net.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))
    return net.returns(net("Mul", "x", net("Sigmoid", net("Mul", "x", name))))


def a_gate_of_means(net: Net) -> bytes:
    mean = net("ReduceMean", "x", axes=[1, 2], keepdims=1)
    return net.returns(net("Mul", "x", net("Sigmoid", mean)))


def tanh_gate(net: Net) -> bytes:
    return net.returns(net("Mul", "x", net("Tanh", "x")))


def half_of_it(net: Net) -> bytes:
    """A gate that is one half everywhere is no activation."""
    return net.returns(net("Mul", "x", net("Sigmoid", net("Mul", "x", 0.0))))


def hard_swish(net: Net) -> bytes:
    """ONNX Runtime has no kernel for HardSwish, and takes it apart again: three tensors either way."""
    gate = net("Clip", net("Add", "x", 3.0), 0.0, 6.0)
    return net.returns(net("Div", net("Mul", "x", gate), 6.0))


NONE = [
    *(
        read_elsewhere,
        returned,
        read_in_a_branch,
        another_gate,
        another_scale,
        another_half,
        another_cube,
        another_power,
    ),
    *(shifted, a_scale_for_each_channel, another_shape, a_constant_that_callers_may_change, a_gate_of_means, tanh_gate),
    *(half_of_it, hard_swish),
]


@pytest.mark.parametrize("case", NONE, ids=lambda one: one.__name__)
def test_what_only_looks_like_one(case: Callable[[Net], bytes]) -> None:
    data = case(Net())
    onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])  # it is a model
    assert chains(data) == ()


def test_other_types_are_left_alone() -> None:
    """Rounding differs from operator to operator where numbers have few digits."""
    net = Net(kind=TensorProto.FLOAT16)
    assert chains(net.returns(sigmoid_gate(net))) == ()


def random_activation(net: Net, rng: random.Random) -> str:
    """Add one of the activations, written in a random way, perhaps with a constant that is a little off."""

    def times(one: str, factor: float) -> str:
        way = rng.randrange(3)
        if way == 0:
            return net("Mul", one, factor)
        return net("Mul", factor, one) if way == 1 else net("Div", one, 1 / factor)

    def product(*names: str) -> str:
        return net("Mul", *rng.sample(names, 2))

    def plus(one: str, number: float) -> str:
        return net("Add", one, number) if rng.random() < 0.5 else net("Sub", one, -number)

    def off(number: float) -> float:
        return number * rng.choice([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.001, 1.2])

    kind = rng.choice(["gate", "erf", "tanh"])
    if kind == "gate":
        alpha = rng.choice([1.0, 1.702, 0.3, -1.0, 4.0])
        scaled = "x" if alpha == 1.0 and rng.random() < 0.5 else times("x", alpha)
        way = rng.randrange(3)
        if way == 0:
            return product("x", net("Sigmoid", scaled))
        bottom = plus(net("Exp", net("Neg", scaled)), off(1.0))
        return net("Div", "x", bottom) if way == 1 else product("x", net("Reciprocal", bottom))
    if kind == "erf":
        curve = plus(net("Erf", times("x", off(1 / ROOT))), off(1.0))
    else:
        cube = net("Pow", "x", 3.0) if rng.random() < 0.5 else product("x", net("Mul", "x", "x"))
        inner = net("Add", *rng.sample(["x", times(cube, off(0.044715))], 2))
        curve = plus(net("Tanh", times(inner, WAVE)), 1.0)
    way = rng.randrange(3)
    if way == 0:
        return times(product("x", curve), off(0.5))
    return product(times("x", off(0.5)), curve) if way == 1 else product("x", times(curve, off(0.5)))


def test_whatever_is_found_computes_the_same() -> None:
    """Random ways to write activations, right and nearly right, executed as given and with one operator each."""
    rng = random.Random(7)
    kinds: set[str] = set()
    left = 0
    for seed in range(120):
        net = Net(rng.choice([14, 17, 20]))
        made = random_activation(net, rng)
        data = net.returns(net("Neg", made))
        if not chains(data):
            left += 1
            continue
        written, found = fused(data)
        kinds |= {chain.type for chain in found}
        same_in_sessions(data, written, rng.choice([0.1, 3.0, 20.0]), seed)
    assert kinds == {QUICK, GELU, FAST, "Gelu"}
    assert 10 < left < 60
