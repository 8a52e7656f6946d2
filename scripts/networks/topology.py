"""Topologies of networks as plain JSON: tensor sizes and nodes, without weights or attributes."""

from __future__ import annotations

import json
from pathlib import Path

from memsched.graph.dag import validate
from memsched.graph.model import Graph, Op, Tensor

__all__ = ["load_topology"]


def load_topology(path: str | Path) -> Graph:
    """Read ``{"name", "tensors": {name: bytes}, "nodes": [{"name", "op", "inputs", "outputs"}], "inputs", "outputs"}``.

    Raises:
        GraphError: The nodes make no valid graph.
        KeyError: A key or a tensor is missing.
    """
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    index = {name: number for number, name in enumerate(data["tensors"])}

    def indices(names: list[str]) -> tuple[int, ...]:
        return tuple(index[name] for name in names)

    graph = Graph(
        name=data["name"],
        tensors=tuple(Tensor(name, size) for name, size in data["tensors"].items()),
        ops=tuple(
            Op(node["name"], node["op"], tuple(dict.fromkeys(indices(node["inputs"]))), indices(node["outputs"]))
            for node in data["nodes"]
        ),
        inputs=indices(data["inputs"]),
        outputs=indices(data["outputs"]),
    )
    validate(graph)
    return graph
