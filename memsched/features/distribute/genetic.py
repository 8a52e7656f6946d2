"""GenEFlow: an elite-preserving genetic search for the bounds of all ops at once, with pymoo.

Source: "MemoriaNova", section 3.3.4. A chromosome is the inner bounds of every op that can be divided (equation 11);
repair sorts them, so that equations 8 to 10 always hold; the other constraints, of memory and of the number of parts,
are violations that the library compares by. A population is evaluated at once in numpy, which needs no processes beside
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memsched.base.errors import RuntimeUnavailableError
from memsched.base.frozen import FrozenValue
from memsched.features.distribute import shares as rules
from memsched.features.distribute.population import Evaluation, Population
from memsched.features.distribute.refine import bounds_of, shares_of
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Axis, Share
from memsched.search.run import Run
from memsched.targets.cluster import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

__all__ = ["Settings", "evolve", "violations"]


class Settings(FrozenValue, frozen=True):
    """How a genetic search runs.

    Attributes:
        size: Plans in a population.
        generations: Most generations; the time limit may end the search before.
        patience: Generations without a better plan after which it has converged.
    """

    size: int = 100
    generations: int = 300
    patience: int = 60


def evolve(
    space: Space,
    cluster: Cluster,
    axes: Sequence[Axis],
    seeds: Sequence[Sequence[Share]],
    run: Run,
    *,
    settings: Settings | None = None,
    home: int = 0,
) -> tuple[Share, ...]:
    """Return the best shares found along ``axes``: never slower than the best of ``seeds`` that fits.

    Args:
        seeds: Plans of the first population, along the same axes; the rest of it is drawn.

    Raises:
        RuntimeUnavailableError: pymoo is not installed.
    """
    try:
        from pymoo.optimize import minimize
    except ImportError:
        raise RuntimeUnavailableError(
            "the genetic search needs pymoo, which is not installed", action="pip install pymoo"
        ) from None
    import numpy as np

    settings = settings or Settings()
    coder = _Coder(space, cluster, axes, home)
    if not coder.genes:
        return shares_of(space, coder.population, coder.decode(np.zeros((1, 0), dtype=np.int64))[0])
    first = coder.first(seeds, settings.size, np.random.default_rng(run.limits.seed))
    result = minimize(
        _problem(coder),
        _algorithm(coder, settings, first),
        ("n_gen", settings.generations),
        seed=run.limits.seed,
        callback=_Convergence(run, settings.patience),
        verbose=False,
    )
    chromosome = result.X if result.X is not None else result.pop[0].X
    return shares_of(space, coder.population, coder.decode(np.array([chromosome], dtype=np.int64))[0])


def violations(population: Population, bounds: Integers, found: Evaluation) -> Integers:
    """Return per plan by how many parts and bytes it violates the constraints, 0 for not at all, [plan, 2].

    Equation 16 is printed with I_j = 0 where two bounds are equal, so that it would bound the number of idle devices;
    here, as its text says, it bounds the number of parts of an op by min(n, k_max): those into which the cluster's
    memory allows it to be divided ("MemoriaNova", sections 3.3.1 and 3.3.3). Equation 18 bounds each device's memory.
    """
    import numpy as np

    devices, memory = len(population.cluster.devices), [device.memory for device in population.cluster.devices]
    most = []
    for position, axis in enumerate(population.axes):
        rows, channels = rules.most_parts(population.space, position, sum(memory))
        most.append(int(max(1.0, min({"rows": rows, "channels": channels, "whole": 1.0}[axis], devices))))
    parts = (np.diff(bounds, axis=2) != 0).sum(axis=2) - np.array(most, dtype=np.int64)
    held = found.held - np.array(memory)
    result: Integers = np.maximum(np.stack([parts.max(axis=1), held.max(axis=(1, 2))], axis=1), 0)
    return result


def _problem(coder: _Coder) -> Any:
    """Return the latency of chromosomes as pymoo has a problem, with what they violate."""
    import numpy as np
    from pymoo.core.problem import Problem

    class Latency(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(
                n_var=coder.genes, n_obj=1, n_ieq_constr=2, xl=0, xu=np.repeat(coder.units, coder.edges), vtype=int
            )

        def _evaluate(self, chromosomes: Any, out: dict[str, Any], *_: Any, **__: Any) -> None:
            bounds = coder.decode(chromosomes.astype(np.int64))
            found = coder.population.evaluate(bounds)
            out["F"] = found.latency
            out["G"] = violations(coder.population, bounds, found)

    return Latency()


def _algorithm(coder: _Coder, settings: Settings, first: Integers) -> Any:
    """Return pymoo's genetic algorithm, with operators that keep bounds sorted and move them together."""
    import numpy as np
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.mutation import Mutation
    from pymoo.core.repair import Repair
    from pymoo.operators.crossover.pntx import TwoPointCrossover

    class SortingRepair(Repair):  # type: ignore[misc]
        def _do(self, _: Any, chromosomes: Any, **__: Any) -> Any:
            rows = np.rint(chromosomes).astype(np.int64).reshape(len(chromosomes), -1, coder.edges)
            rows = np.clip(rows, 0, coder.units[None, :, None])
            rows.sort(axis=2)
            return rows.reshape(len(chromosomes), -1)

    class ShiftMutation(Mutation):  # type: ignore[misc]
        """Moves the bounds of a few consecutive ops, each by the same fraction."""

        def _do(self, _: Any, chromosomes: Any, random_state: Any = None, **__: Any) -> Any:
            return coder.shifted(chromosomes, random_state)

    return GA(
        pop_size=settings.size,
        sampling=first,
        crossover=TwoPointCrossover(),
        mutation=ShiftMutation(),
        repair=SortingRepair(),
        # Where only few plans exist, the library would look for new ones without end.
        eliminate_duplicates=coder.plans > 100 * settings.size,
    )


class _Convergence:
    """Ends the search after ``patience`` generations without a better plan, or with the run."""

    def __init__(self, run: Run, patience: int) -> None:
        self._run, self._patience = run, patience
        self._best, self._stale = math.inf, 0

    def __call__(self, algorithm: Any) -> None:
        found = algorithm.opt[0]
        value = float(found.F[0]) if found.CV[0] <= 0 else math.inf
        better = value < self._best * (1 - 1e-9)
        self._best, self._stale = (value, 0) if better else (self._best, self._stale + 1)
        late = self._run.over()
        if self._stale >= self._patience or late:
            algorithm.termination.force_termination = True


class _Coder:
    """From chromosomes (inner bounds in units, op after op) to bounds and back."""

    def __init__(self, space: Space, cluster: Cluster, axes: Sequence[Axis], home: int) -> None:
        import numpy as np

        self.space, self.home = space, home
        self.population = Population(space, cluster, axes, home=home)
        self.edges = len(cluster.devices) - 1
        self.places = [place for place, axis in enumerate(axes) if axis != "whole"]
        divisions = [space.divisions[place][axes[place]] for place in self.places]
        self.units = np.array([one.units for one in divisions], dtype=np.int64)
        self.unit = np.array([one.unit for one in divisions], dtype=np.int64)
        self.length = np.array([one.length for one in divisions], dtype=np.int64)
        self.genes = len(self.places) * self.edges
        self.plans = math.prod(math.comb(one.units + self.edges, self.edges) for one in divisions)

    def decode(self, chromosomes: Integers) -> Integers:
        """Return the bounds of chromosomes, [plan, position, device + 1]; ops that are not divided go to ``home``."""
        import numpy as np

        plans = len(chromosomes)
        result: Integers = np.zeros((plans, len(self.population.axes), self.edges + 2), dtype=np.int64)
        result[:, :, self.home + 1 :] = 1
        if self.places:
            inner = chromosomes.reshape(plans, len(self.places), self.edges)
            result[:, self.places, 0] = 0
            result[:, self.places, 1:-1] = np.minimum(inner * self.unit[:, None], self.length[:, None])
            result[:, self.places, -1] = self.length
        return result

    def encode(self, shares: Sequence[Share]) -> Integers:
        """Return the chromosome of shares along the same axes."""
        bounds = bounds_of(shares)[:, self.places, 1:-1]
        result: Integers = -(-bounds // self.unit[None, :, None])
        return result.reshape(-1)

    def first(self, seeds: Sequence[Sequence[Share]], size: int, random: np.random.Generator) -> Integers:
        """Return the first population: the seeds, plans of one profile for all ops, and plans drawn op by op."""
        import numpy as np

        rows = [self.encode(seed) for seed in seeds]
        while len(rows) < size:
            shape = (1 if len(rows) % 2 else len(self.places), self.edges)
            cuts = np.sort(random.random(shape), axis=1)
            rows.append(np.rint(cuts * self.units[:, None]).astype(np.int64).reshape(-1))
        return np.array(rows[:size])

    def shifted(self, chromosomes: Any, random: np.random.Generator) -> Any:
        """Return chromosomes of which a run of ops has one boundary moved."""
        import numpy as np

        result = chromosomes.astype(np.float64).reshape(len(chromosomes), -1, self.edges)
        count = len(self.places)
        for row in result:
            start = int(random.integers(count))
            stop = min(count, start + int(random.geometric(0.1)))
            boundary = int(random.integers(self.edges))
            change = random.normal(0, 0.03)
            moved = row[start:stop, boundary] + change * self.units[start:stop]
            # At least one unit, in the direction that was drawn.
            least = row[start:stop, boundary] + np.sign(change)
            row[start:stop, boundary] = np.maximum(moved, least) if change > 0 else np.minimum(moved, least)
        return result.reshape(len(chromosomes), -1)
