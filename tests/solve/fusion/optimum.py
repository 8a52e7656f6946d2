"""The optimum of contracted graphs, by dynamic programming over all downsets."""

from __future__ import annotations

from memsched.graph.contraction import Tasks

__all__ = ["optimum"]


def optimum(tasks: Tasks) -> int:
    """Return the least peak of any order of ``tasks`` (a dozen or so), asking only `Tasks.excess` for costs."""
    count = len(tasks)
    befores = [sum(1 << before for before in preds) for preds in tasks.preds]
    users = [sum(1 << user for user in using) for using in tasks.users]
    residues = {0: tasks.initial}
    costs: dict[tuple[int, tuple[int, ...]], int] = {}
    layer = {0: 0 if count else tasks.initial}
    for _ in range(count):
        following: dict[int, int] = {}
        for done, peak in layer.items():
            for task in range(count):
                if done >> task & 1 or befores[task] & ~done:
                    continue
                after = done | 1 << task
                dying = tuple(b for b in tasks.reads[task] if not tasks.kept[b] and not users[b] & ~after)
                key = (task, dying)
                if key not in costs:
                    costs[key] = tasks.excess(task, dying)
                cost = max(peak, residues[done] + costs[key])
                if after not in residues:
                    change = sum(tasks.sizes[b] for b in tasks.creates[task]) - sum(tasks.sizes[b] for b in dying)
                    residues[after] = residues[done] + change
                if cost < following.get(after, cost + 1):
                    following[after] = cost
        layer = following
    return layer[(1 << count) - 1]
