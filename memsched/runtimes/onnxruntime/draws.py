"""Models that draw random numbers: the same numbers in several files, and whether each draw is in all of them once.

ONNX Runtime seeds the generator of an op when a session is opened, by the attribute ``seed``. Copies in memory get
this attribute on every op that lacks it, in bodies and functions too; the files stay as they are.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.effects import false_names, is_pure_type, node_effects
from memsched.formats.onnx.functions import calls_functions, inline
from memsched.formats.onnx.graph_effects import nodes_of
from memsched.formats.onnx.nodes import opset
from memsched.formats.onnx.structure import FalseNames, analyse, op_type
from memsched.ops.onnx import SEEDS

__all__ = ["Draws", "same_draws"]

_SEEDS: Final = 1 << 24  # a float of 32 bits holds every integer below exactly


class Draws(FrozenValue, frozen=True):
    """What was done to compare models that draw.

    Attributes:
        models: The models, with the same seeds; unchanged if none draws.
        count: Ops of the first model that draw, in bodies and functions too.
        unseeded: The type of an op that takes no seed, so that its draws differ from session to session; None if
            there is none.
        mismatch: How the others draw otherwise than the first; None if they do not.
    """

    models: tuple[Any, ...]
    count: int = 0
    unseeded: str | None = None
    mismatch: str | None = None

    def seeded(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request whose "models" are these, if they draw."""
        if not self.count:
            return request
        pairs = zip(self.models, request["models"], strict=True)
        models = [{"bytes": proto.SerializeToString(), "folder": model["folder"]} for proto, model in pairs]
        return {**request, "models": models}

    def told(self) -> dict[str, Any]:
        """Return all but the models as plain values."""
        return {"count": self.count, "mismatch": self.mismatch, "seeded": self.unseeded is None}


def same_draws(given: Any, others: Sequence[Any]) -> Draws:
    """Give the ops that draw the same seeds in a model and in others that together stand for it.

    Args:
        given: The original as a protobuf message.
        others: The other models: one, or the parts of one; none to give seeds by the names of values alone.
    """
    models = (given, *others)
    if not any(_may_draw(model) for model in models):
        return Draws(models)
    copies = [_inlined(model) for model in models]
    drawing = [_drawing(model) for model in copies]
    first, rest = Counter(drawing[0]), Counter(one for several in drawing[1:] for one in several)
    kinds, others_kinds = _by_kind(first), _by_kind(rest)
    named = first == rest or not others
    unseeded = None
    for model in copies:
        for node, key in _nodes(model):
            if key[0] not in SEEDS:
                unseeded = key[0]
            elif not any(one.name == "seed" for one in node.attribute):
                # Names tell draws apart, unless a runtime that inlined functions gave them names of its own.
                _give_seed(node, key[0], "/".join(key) if named else key[0])
    wrong = next((kind for kind in sorted({*kinds, *others_kinds}) if kinds[kind] != others_kinds[kind]), None)
    mismatch = None
    if others and wrong is not None:
        mismatch = f"{others_kinds[wrong]} {wrong} draw random numbers instead of {kinds[wrong]}"
    return Draws(tuple(copies), sum(first.values()), unseeded, mismatch)


def _may_draw(model: Any) -> bool:
    every = (*nodes_of(model.graph.node), *(node for one in model.functions for node in nodes_of(one.node)))
    return any(not is_pure_type(op_type(node)) for node in every) and bool(_nodes(model))


def _inlined(model: Any) -> Any:
    copy = type(model)()
    copy.CopyFrom(model)
    return inline(copy) if calls_functions(copy) else copy


def _drawing(model: Any) -> list[tuple[str, str]]:
    return [key for _, key in _nodes(model)]


def _nodes(model: Any) -> list[tuple[Any, tuple[str, str]]]:
    """Return the nodes that draw, each with its type and the name of its first output."""
    version, scopes = opset(model), analyse(model.graph)
    is_false = FalseNames(scopes)
    found = []
    for index, scope in enumerate(scopes):
        for node, kind in zip(scope.graph.node, scope.kinds, strict=True):
            if not is_pure_type(kind) and node_effects(node, kind, is_false.within(index), version).random:
                found.append((node, (kind, _name(node))))
    for function in model.functions:
        nodes = list(nodes_of(function.node))
        false = false_names(nodes)
        found += [
            (node, (op_type(node), f"{function.name}/{_name(node)}"))
            for node in nodes
            if node_effects(node, op_type(node), false.__contains__, version).random
        ]
    return found


def _name(node: Any) -> str:
    return next((str(name) for name in node.output if name), "")


def _by_kind(draws: Counter[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (kind, _), count in draws.items():
        found[kind] += count
    return found


def _give_seed(node: Any, kind: str, words: str) -> None:
    from onnx import helper

    seed = zlib.crc32(words.encode()) % _SEEDS
    node.attribute.append(helper.make_attribute("seed", float(seed) if SEEDS[kind] == "float" else seed))
