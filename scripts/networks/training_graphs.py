"""Training graphs: a network's ops forward, and one op backward for each, which reads what the forward op read."""

from __future__ import annotations

from memsched.graph.model import Graph, Op, Tensor

__all__ = ["training_graph"]

_WEIGHT_STEP = 4
"""Bytes that a backward op without a gradient of an activation leaves: it updates its weights at once."""


def training_graph(graph: Graph) -> Graph:
    """Return ``graph``, without views and in-place writes, followed by the computation of its gradients.

    An op's backward op reads its inputs and the gradient of its outputs, gives the gradient of each input that another
    op produced, and takes twice the op's multiply-accumulates. Gradients of one tensor from several readers are added
    one after the other. The gradient of a graph output is made from it. The graph's outputs are the backward ops'
    results that nobody reads.
    """
    builder = _Builder(graph)
    for output in graph.outputs:
        builder.give(output, builder.add("Loss", f"loss of {graph.tensors[output].name}", (output,), (output,), 0)[0])
    for number in range(len(graph.ops) - 1, -1, -1):
        builder.back(number)
    read = {tensor for op in builder.ops for tensor in op.inputs}
    unread = tuple(tensor for op in builder.ops[len(graph.ops) :] for tensor in op.outputs if tensor not in read)
    return Graph(f"training {graph.name}", tuple(builder.tensors), tuple(builder.ops), graph.inputs, unread)


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = list(graph.tensors)
        self.ops = [Op(op.name, op.type, op.inputs, op.outputs, op.workspace, macs=op.macs) for op in graph.ops]
        self.made = {tensor for op in graph.ops for tensor in op.outputs}
        self.gradient: dict[int, int] = {}

    def add(self, kind: str, name: str, inputs: tuple[int, ...], like: tuple[int, ...], macs: int) -> tuple[int, ...]:
        """Add an op whose outputs are as large as the tensors ``like``."""
        first = len(self.tensors)
        for place, tensor in enumerate(like):
            self.tensors.append(Tensor(f"{name} {place}", self.graph.tensors[tensor].size))
        if not like:
            self.tensors.append(Tensor(name, _WEIGHT_STEP))
        outputs = tuple(range(first, len(self.tensors)))
        self.ops.append(Op(name, kind, tuple(dict.fromkeys(inputs)), outputs, macs=macs))
        return outputs

    def give(self, tensor: int, gradient: int) -> None:
        """Add to a tensor's gradient."""
        known = self.gradient.get(tensor)
        if known is not None:
            name = f"sum {len(self.ops)} for {self.graph.tensors[tensor].name}"
            gradient = self.add("Add", name, (known, gradient), (tensor,), 0)[0]
        self.gradient[tensor] = gradient

    def back(self, number: int) -> None:
        """Add the backward op of an op, where a gradient reaches it."""
        op = self.graph.ops[number]
        given = tuple(self.gradient[tensor] for tensor in op.outputs if tensor in self.gradient)
        if not given:
            return
        wanted = tuple(dict.fromkeys(tensor for tensor in op.inputs if tensor in self.made))
        results = self.add(f"{op.type}Grad", f"back {op.name}", (*op.inputs, *given), wanted, 2 * op.macs)
        for tensor, gradient in zip(wanted, results, strict=False):
            self.give(tensor, gradient)
