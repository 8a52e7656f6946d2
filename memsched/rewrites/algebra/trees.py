"""Split concatenations of many inputs into trees of small ones, which delegates accept."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor
from memsched.rewrites.algebra.parts import joined

__all__ = ["Tree", "as_tree", "trees_of"]


class Tree(FrozenValue, frozen=True):
    """A concatenation to split.

    Attributes:
        op: The op's name.
        most: Largest number of inputs for each concatenation of the tree.
        count: Number of inputs of the original.
        saved: Bytes of the output, which no longer crosses between kernels.
    """

    op: str
    most: int
    count: int
    saved: int


def trees_of(graph: Graph, most: int) -> tuple[Tree, ...]:
    """Return the concatenations with more than ``most`` inputs."""
    found = []
    for number, op in enumerate(graph.ops):
        if len(op.inputs) > most and joined(graph, number) is not None:
            found.append(Tree(op.name, most, len(op.inputs), graph.tensors[op.outputs[0]].size))
    return tuple(found)


def as_tree(draft: AlgebraDraft, tree: Tree) -> AlgebraDraft | None:
    """Return the draft with one concatenation split; None if the op is missing or an input is quantized differently."""
    graph, words = draft.graph, draft.dialect
    number = draft.number_of(tree.op)
    found = None if number is None else joined(graph, number)
    if number is None or found is None:
        return None
    axis, (made,), inputs = found[0], graph.ops[number].outputs, list(graph.ops[number].inputs)
    if not all(draft.same_values(one, made) for one in inputs):
        return None
    editor = Editor(draft, number)
    attributes = words.concat_attributes(axis)
    while len(inputs) > tree.most:
        # Join as few inputs as possible first, because the tree copies these twice.
        first = min(tree.most, len(inputs) - tree.most + 1)
        shape = list(editor.tensors[inputs[0]].shape or ())
        shape[axis] = sum((editor.tensors[one].shape or ())[axis] for one in inputs[:first])
        part = editor.tensor(made, shape, "#part")
        editor.helper(words.concat_type, inputs[:first], part, attributes)
        inputs = [part, *inputs[first:]]
    editor.helper(words.concat_type, inputs, made, attributes)
    return editor.draft()
