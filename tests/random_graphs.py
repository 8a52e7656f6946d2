"""Small random graphs with every feature of the memory model, for property tests of all packages."""

from __future__ import annotations

import random
from dataclasses import replace

from memsched.graph.model import Graph, Op, Tensor

__all__ = ["random_graph", "random_layered_graph", "random_order"]


def random_graph(
    rng: random.Random,
    ops: int,
    *,
    views: bool = True,
    in_place: bool = True,
    workspace: bool = True,
    multi_output: bool = True,
    extras: bool = True,
    layable: bool = False,
) -> Graph:
    """Return a valid graph of ``ops`` ops.

    It has several inputs, tensors with several consumers, outputs that nobody reads, and graph outputs that are
    read as well. Sizes are small, so that equal ones meet often.

    Args:
        views: Views of whole tensors, slices, and concatenations, some with a constant part of their own.
        in_place: In-place candidates, some of them of unequal size or never dying, which must be ignored.
        extras: Dependencies without a tensor, variables, inputs that the caller owns, sizes of 0.
        layable: Concatenations have addresses, as those of a lowered graph do: a piece is no slice, lies in one
            concatenation, and is not overwritten; slices begin anywhere.
    """
    builder = _Builder(rng, in_place=in_place, workspace=workspace, extras=extras, layable=layable)
    locality = rng.choice([1, 2, 4, 100])
    for _ in range(rng.randint(1, 3)):
        builder.add_input()
    variables = (builder.add_tensor(rng.randint(1, 9)),) if extras and rng.random() < 0.1 else ()
    # A view of a state is a copy.
    builder.slices.update(variables)
    for _ in range(ops):
        read = builder.pick_inputs(locality)
        draw = rng.random()
        if views and read and draw < 0.2:
            builder.add_view(read)
        elif views and len(read) > 1 and draw < 0.4:
            builder.add_concatenation(read)
        else:
            builder.add_op(read, rng.choice([1, 1, 1, 2, 3]) if multi_output else 1)
    return builder.graph(variables)


class _Builder:
    def __init__(self, rng: random.Random, *, in_place: bool, workspace: bool, extras: bool, layable: bool) -> None:
        self.rng = rng
        self.in_place = in_place
        self.workspace = workspace
        self.extras = extras
        self.layable = layable
        self.slices: set[int] = set()
        self.pieces: set[int] = set()
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.inputs: list[int] = []
        self.buffers: dict[int, set[int]] = {}
        self.largest = rng.choice([3, 9, 30])

    def add_tensor(self, size: int) -> int:
        index = len(self.tensors)
        self.tensors.append(Tensor(f"t{index}", size))
        self.buffers[index] = {index}
        return index

    def add_input(self) -> None:
        index = self.add_tensor(self.size())
        self.inputs.append(index)
        if self.extras and self.rng.random() < 0.1:
            self.tensors[index] = replace(self.tensors[index], external=True)

    def size(self) -> int:
        return 0 if self.extras and self.rng.random() < 0.03 else self.rng.randint(1, self.largest)

    def pick_inputs(self, locality: int) -> tuple[int, ...]:
        if self.extras and self.rng.random() < 0.02:
            return ()
        count = min(len(self.tensors), self.rng.choice([1, 1, 2, 2, 3]))
        recent = range(max(0, len(self.tensors) - locality - count), len(self.tensors))
        source = recent if self.rng.random() < 0.7 else range(len(self.tensors))
        return tuple(self.rng.sample(source, count))

    def finish(
        self,
        kind: str,
        read: tuple[int, ...],
        outputs: tuple[int, ...],
        views: tuple[tuple[int, int], ...],
        view_offsets: tuple[int, ...] = (),
    ) -> None:
        pairs = []
        for output in outputs:
            for source in read:
                if not self.in_place or self.rng.random() < 0.6 or (views and self.rng.random() < 0.9):
                    continue
                if not views and self.rng.random() < 0.8:
                    self.tensors[output] = replace(self.tensors[output], size=self.tensors[source].size)
                pairs.append((output, source))
        scratch = self.rng.choice([0, 0, 0, self.rng.randint(1, self.largest)]) if self.workspace else 0
        name = f"{kind.lower()}{len(self.ops)}"
        self.ops.append(Op(name, kind, read, outputs, workspace=scratch, views=views, in_place=tuple(pairs)))
        if view_offsets:
            self.ops[-1] = replace(self.ops[-1], view_offsets=view_offsets)

    def add_op(self, read: tuple[int, ...], outputs: int) -> None:
        self.finish("Op", read, tuple(self.add_tensor(self.size()) for _ in range(outputs)), ())

    def add_view(self, read: tuple[int, ...]) -> None:
        """A reshape of the first input, or a slice of it."""
        source = read[0]
        whole = self.tensors[source].size
        output = self.add_tensor(whole if self.rng.random() < 0.7 else self.rng.randint(0, whole))
        self.buffers[output] = self.buffers[source]
        offsets: tuple[int, ...] = ()
        if self.layable:
            offsets = (self.rng.randint(0, whole - self.tensors[output].size),)
            if source in self.slices or self.tensors[output].size < whole:
                self.slices.add(output)
        self.finish("View", read, (output,), ((output, source),), offsets)

    def add_concatenation(self, read: tuple[int, ...]) -> None:
        """Pieces that lie one after the other: no two may share bytes."""
        pieces: list[int] = []
        taken: set[int] = set()
        for source in read:
            if not taken & self.buffers[source] and (not self.layable or self.may_be_piece(source)):
                pieces.append(source)
                taken |= self.buffers[source]
        constant = self.rng.choice([0, 0, 0, self.rng.randint(1, self.largest)])
        output = self.add_tensor(sum(self.tensors[piece].size for piece in pieces) + constant)
        self.buffers[output] = taken | ({output} if constant else set())
        if not taken:
            self.buffers[output] = {output}
        views = tuple((output, piece) for piece in pieces)
        if not self.layable:
            self.finish("Concat", read, (output,), views)
            return
        self.pieces |= taken
        self.rng.shuffle(pieces)
        gap, ends = self.rng.randint(0, len(pieces)), {}
        end = 0
        for index, piece in enumerate(pieces):
            end += constant if index == gap else 0
            ends[piece] = end
            end += self.tensors[piece].size
        self.finish("Concat", read, (output,), views, tuple(ends[piece] for _, piece in views))

    def may_be_piece(self, source: int) -> bool:
        buffers = self.buffers[source]
        return (
            source not in self.slices
            and not buffers & self.pieces
            and not any(self.tensors[buffer].external for buffer in buffers)
            and self.tensors[source].size > 0
        )

    def graph(self, variables: tuple[int, ...]) -> Graph:
        rng = self.rng
        read = {tensor for op in self.ops for tensor in op.inputs}
        produced = [tensor for op in self.ops for tensor in op.outputs]
        outputs = [t for t in produced if rng.random() < (0.1 if t in read else 0.7)]
        if self.extras and rng.random() < 0.05:
            outputs.append(self.inputs[0])
        dependencies = set()
        if self.extras and len(self.ops) > 1 and rng.random() < 0.2:
            for _ in range(rng.randint(1, 2)):
                before, after = sorted(rng.sample(range(len(self.ops)), 2))
                dependencies.add((before, after))
        ops = self.ops
        if self.layable:
            ops = [
                replace(op, in_place=tuple(pair for pair in op.in_place if not self.buffers[pair[1]] & self.pieces))
                for op in ops
            ]
        return Graph(
            name="random",
            tensors=tuple(self.tensors),
            ops=tuple(ops),
            inputs=tuple(self.inputs),
            outputs=tuple(outputs),
            variables=variables,
            dependencies=tuple(sorted(dependencies)),
        )


def random_layered_graph(rng: random.Random, ops: int, *, width: int = 500) -> Graph:
    """Return a large graph whose ops read from the last ``width`` tensors; every unread tensor is a graph output."""
    tensors = [Tensor("input", rng.randint(1, 99))]
    nodes = []
    for index in range(ops):
        read = tuple(dict.fromkeys(rng.randrange(max(0, index + 1 - width), index + 1) for _ in range(2)))
        nodes.append(Op(f"op{index}", "Op", read, (len(tensors),)))
        tensors.append(Tensor(f"t{index}", rng.randint(1, 99)))
    used = {tensor for node in nodes for tensor in node.inputs}
    outputs = tuple(tensor for tensor in range(1, len(tensors)) if tensor not in used)
    return Graph("layered", tuple(tensors), tuple(nodes), (0,), outputs)


def random_order(rng: random.Random, graph: Graph) -> tuple[int, ...]:
    """Return a random topological order of the ops."""
    producer = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
    before: list[set[int]] = [{producer[t] for t in op.inputs if t in producer} for op in graph.ops]
    for first, second in graph.dependencies:
        before[second].add(first)
    order: list[int] = []
    done: set[int] = set()
    while len(order) < len(graph.ops):
        order.append(rng.choice([op for op in range(len(graph.ops)) if op not in done and before[op] <= done]))
        done.add(order[-1])
    return tuple(order)
