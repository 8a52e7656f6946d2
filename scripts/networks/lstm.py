"""An LSTM cell (Hochreiter and Schmidhuber, with the forget gate of Gers et al.) unrolled 32 times.

64 features in, 128 units; all steps share the weights. Outputs: the states of all steps, and the last cell state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["lstm_unrolled"]

_STEPS: Final = 32
_FEATURES: Final = 64
_UNITS: Final = 128


def lstm_unrolled() -> ModelProto:
    """Return the unrolled cell."""
    net = Builder("lstm_unrolled")
    sequence = net.input("sequence", 1, _STEPS, _FEATURES)
    state = net.input("initial_state", 1, 1, _UNITS)
    cell = net.input("initial_cell", 1, 1, _UNITS)
    from_input = net.weight((_FEATURES, 4 * _UNITS), _FEATURES)
    from_state = net.weight((_UNITS, 4 * _UNITS), _UNITS)
    states = []
    for step in net.nodes("Split", [sequence], [(1, 1, _FEATURES)] * _STEPS, axis=1):
        gates = _gates(net, step, state, from_input, from_state)
        opened = [net.unary("Sigmoid", gate) for gate in gates[:3]]
        candidate = net.unary("Tanh", gates[3])
        cell = net.add(_times(net, opened[0], cell), _times(net, opened[1], candidate))
        state = _times(net, opened[2], net.unary("Tanh", cell))
        states.append(state)
    return net.model(net.concat(states, 1), cell)


def _gates(net: Builder, step: Value, state: Value, from_input: str, from_state: str) -> tuple[Value, ...]:
    """Return the forget, input and output gates and the candidate, before their activations."""
    shape = (1, 1, 4 * _UNITS)
    total = net.add(net.node("MatMul", [step, from_input], shape), net.node("MatMul", [state, from_state], shape))
    biased = net.node("Add", [total, net.bias(4 * _UNITS)], shape)
    return net.nodes("Split", [biased], [(1, 1, _UNITS)] * 4, axis=2)


def _times(net: Builder, x: Value, y: Value) -> Value:
    return net.node("Mul", [x, y], x.shape)
