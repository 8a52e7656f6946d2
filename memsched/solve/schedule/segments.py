"""Cutting a problem at the tasks that every other task precedes or follows: the parts are ordered apart.

Before such a task exactly its ancestors have run, in every order, so the residue there is fixed, and an optimal order
of the whole is the concatenation of optimal orders of the parts.
"""

from __future__ import annotations

from itertools import pairwise

from memsched.graph.contraction import Tasks, restrict
from memsched.graph.dag import separating_nodes

__all__ = ["split"]


def split(tasks: Tasks) -> list[tuple[Tasks, range]]:
    """Return the segments in order: each as tasks of its own, and the range of their numbers in ``tasks``.

    A separating task ends its segment; runs of nothing but separating tasks stay together. Linear time.
    """
    separating = set(separating_nodes(tasks.preds, tasks.succs))
    ends = [task + 1 for task in range(len(tasks) - 1) if task in separating and task + 1 not in separating]
    if not ends:
        return [(tasks, range(len(tasks)))]
    _, residues = tasks.run(range(len(tasks)))
    result = []
    for start, end in pairwise([0, *ends, len(tasks)]):
        numbers = range(start, end)
        result.append(
            (restrict(tasks, numbers, range(start), residues[start - 1] if start else tasks.initial), numbers)
        )
    return result
