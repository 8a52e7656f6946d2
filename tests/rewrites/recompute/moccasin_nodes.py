"""A graph as CP-SAT sees it: nodes executed as one, and the values between them, with views and dying inputs."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks, contract
from memsched.graph.liveness import Storage
from memsched.rewrites.recompute.trace import Tracer

__all__ = ["NodeValue", "Nodes"]


class NodeValue(FrozenValue, frozen=True):
    """A tensor that nodes other than its own read, or that stays.

    Attributes:
        maker: Its node; -1 for one given from outside.
        size: Bytes of its own.
        readers: Nodes, ascending, without the maker.
        kept: Whether it stays to the end.
        shows: Values whose bytes it shows.
    """

    maker: int
    size: int
    readers: tuple[int, ...]
    kept: bool
    shows: tuple[int, ...]


class Nodes:
    """The nodes and the values between them.

    Attributes:
        all: The values.
        values: Per node the numbers of the values that it makes.
        reads: Per node the numbers of the values that it reads.
        extra: Per node the bytes that it needs beside what it reads and the values it makes.
        credits: Per node pairs (value, bytes): what that value's dying in the node saves.
    """

    def __init__(self, tracer: Tracer, groups: Sequence[Sequence[int]]) -> None:
        self.tracer = tracer
        graph = tracer.graph
        storage = Storage.of(graph)
        tasks = contract(storage, groups)
        self.members = tasks.members
        self.count = len(tasks)
        self.variables = storage.variables
        node_of = [0] * tracer.count
        for node, ops in enumerate(self.members):
            for op in ops:
                node_of[op] = node
        self.node_of = node_of
        self.repeat = [all(tracer.repeat[op] for op in ops) for ops in self.members]
        self.costs = [sum(tracer.costs[op] for op in ops) for ops in self.members]
        number = self._number_values()
        self.values: list[list[int]] = [[] for _ in self.members]
        self.reads: list[list[int]] = [[] for _ in self.members]
        for index, value in enumerate(self.all):
            if value.maker >= 0:
                self.values[value.maker].append(index)
            for reader in value.readers:
                self.reads[reader].append(index)
        self.extra, self.credits = self._costs(tasks, storage, number)

    def _number_values(self) -> dict[int, int]:
        graph, tracer = self.tracer.graph, self.tracer
        readers: list[set[int]] = [set() for _ in graph.tensors]
        for op, read in enumerate(tracer.reads):
            for tensor in read:
                readers[tensor].add(self.node_of[op])
        variables, outputs = set(graph.variables), set(graph.outputs)
        shown: dict[int, list[int]] = {}
        for one in graph.ops:
            for output, source in one.views:
                shown.setdefault(output, []).append(source)
        number: dict[int, int] = {}
        self.all: list[NodeValue] = []
        own: dict[int, int] = {}
        inner: dict[int, tuple[int, ...]] = {}
        for tensor in (*graph.inputs, *(t for op in graph.ops for t in op.outputs)):
            if tensor in variables:
                continue
            maker = tracer.producer[tensor]
            node = self.node_of[maker] if maker >= 0 else -1
            sources = tuple(dict.fromkeys(shown.get(tensor, ())))
            size = 0 if graph.tensors[tensor].external else graph.tensors[tensor].size
            size = max(0, size - sum(graph.tensors[source].size for source in sources))
            shows: list[int] = []
            for source in sources:
                if source in number:
                    shows.append(number[source])
                elif source not in variables:
                    # Made inside the node and read nowhere else: its bytes are this value's.
                    size += own[source]
                    shows.extend(inner[source])
            own[tensor], inner[tensor] = size, tuple(dict.fromkeys(shows))
            using = tuple(sorted(readers[tensor] - {node}))
            if using or tensor in outputs:
                number[tensor] = len(self.all)
                self.all.append(NodeValue(node, size, using, tensor in outputs, inner[tensor]))
        return number

    def _costs(
        self, tasks: Tasks, storage: Storage, number: dict[int, int]
    ) -> tuple[list[int], list[list[tuple[int, int]]]]:
        extra: list[int] = []
        saves: list[list[tuple[int, int]]] = []
        tensor_of = {index: tensor for tensor, index in number.items()}
        shown = {source for value in self.all for source in value.shows}
        crossing = {buffer: index for index, buffer in enumerate(tasks.buffers)}
        for node in range(self.count):
            whole = tasks.excess(node, ())
            extra.append(max(0, whole - sum(self.all[value].size for value in self.values[node])))
            saving = []
            for index in self.reads[node]:
                value = self.all[index]
                buffers = storage.buffers_of[tensor_of[index]]
                if value.kept or value.shows or index in shown or len(buffers) != 1 or buffers[0] not in crossing:
                    continue
                saved = whole - tasks.excess(node, (crossing[buffers[0]],))
                # An op with a footprint that its own outputs do not fill has no more than that to save.
                saved = min(saved, value.size)
                if saved > 0:
                    saving.append((index, saved))
            saves.append(saving)
        return extra, saves

    def stages(self, sequence: Sequence[int]) -> list[list[int]]:
        """Return per node the stages of its repetitions in ``sequence``, whole executions of the group only."""
        done: list[bool] = [False] * self.tracer.count
        first = [0] * self.tracer.count
        found: list[list[int]] = [[] for _ in range(self.count)]
        for place, op in enumerate(sequence):
            if not done[op]:
                done[op] = True
                first[op] = place
        starts = sorted((min(first[op] for op in ops), node) for node, ops in enumerate(self.members))
        done = [False] * self.tracer.count
        at = 0
        for place, op in enumerate(sequence):
            while at < len(starts) and starts[at][0] < place:
                at += 1
            if done[op] and op == self.members[self.node_of[op]][-1] and at < len(starts):
                stage = starts[at][1]
                if stage > self.node_of[op]:
                    found[self.node_of[op]].append(stage)
            done[op] = True
        return found
