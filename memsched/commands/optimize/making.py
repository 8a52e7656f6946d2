"""Making the model of a rewritten graph: written, read back and placed; a pure function, in whichever process."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from memsched.commands.optimize.place import ModulePlan, Request, as_stored, place, prepare_again
from memsched.commands.optimize.rewrite import RewriteBase
from memsched.formats.module import Module
from memsched.frozen import FrozenValue
from memsched.graph.border import Border
from memsched.graph.model import Graph
from memsched.planning.rewrite import plain, read_back, with_origins
from memsched.planning.values import TargetModule

__all__ = ["ModelMaker", "RewrittenModel", "StoredPlan", "WayBuilder", "WrittenModel"]

_WORK_PER_OP = 1.5e-4
_WORK_PER_BYTE = 1e-8
"""What `Limits.effort` is charged for a model that is built, written and read back, per op and per byte."""

_Part = TypeVar("_Part", bound=Hashable)
_Part_contra = TypeVar("_Part_contra", bound=Hashable, contravariant=True)


class RewrittenModel(FrozenValue, frozen=True):
    """A rewritten model, with its orders and addresses.

    Attributes:
        data: Its file, in the order in which it was made.
        extra_macs: Multiply-accumulates that the model it was made from does not have.
        work: What it took to write it, and to read it back, as `Limits.effort`.
        borders: What its caller has to do instead of it.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    placed: ModulePlan
    extra_macs: int
    work: float = 0.0
    borders: tuple[Border, ...] = ()


class WrittenModel(FrozenValue, frozen=True):
    """A rewritten model as its file was read back; see `RewrittenModel`."""

    module: Module
    data: bytes
    prepared: TargetModule
    extra_macs: int
    work: float


class StoredPlan(FrozenValue, frozen=True):
    """A rewritten model in the order in which it was made.

    Attributes:
        work: What that took, as `Limits.effort`.
    """

    placed: ModulePlan
    work: float


class WayBuilder(Protocol[_Part_contra]):
    """What `Rewrite` has for making models of what it found; see there."""

    @property
    def graph(self) -> Graph:
        """What ways are built from."""

    @property
    def proven(self) -> bool:
        """Whether graphs are checked when they are built."""

    def borders(self, way: tuple[_Part_contra, ...]) -> tuple[Border, ...]:
        """Return what the caller has to do instead of the model."""

    def build(self, way: tuple[_Part_contra, ...]) -> Graph:
        """Return the graph rewritten."""


class ModelMaker(Generic[_Part]):
    """Makes models of the ways of one rewrite.

    Args:
        builder: The rewrite, or what of it is needed here.
        base: The model that it starts from.
        budget: Bytes that a model may require.
    """

    def __init__(self, builder: WayBuilder[_Part], base: RewriteBase, budget: int | None) -> None:
        self._builder, self._base, self._budget = builder, base, budget
        self._plain = plain(base.module)
        self._macs = sum(op.macs for op in builder.graph.ops)

    def file(self, way: tuple[_Part, ...], request: Request) -> tuple[Module, bytes, int]:
        """Return what a way's file is read as, the file, and its extra multiply-accumulates.

        Raises:
            InternalError: The file does not hold the graph.
            ModelError: The target's runtime would refuse an operator.
            GivenUpError: See `Request.go_on`.
        """
        graph = self._builder.build(way)
        request.go_on()
        base = self._base
        again, data = read_back(
            self._plain,
            graph,
            base.options,
            base.prepared.target,
            request.go_on,
            self._builder.borders(way),
            proven=self._builder.proven,
            opening=request.opening,
        )
        if self._plain is not base.module:
            again = with_origins(again, base.module)
        return again, data, sum(op.macs for op in graph.ops) - self._macs

    def written(self, way: tuple[_Part, ...], request: Request) -> WrittenModel:
        """Return a way's model as far as that needs no search; raises as `file` does."""
        request.go_on()
        again, data, extra = self.file(way, request)
        request.go_on()
        work = _WORK_PER_OP * sum(len(graph.ops) for graph in again.graphs) + _WORK_PER_BYTE * len(data)
        return WrittenModel(again, data, prepare_again(again, self._base.prepared, request), extra, work)

    def stored(self, written: WrittenModel, request: Request) -> StoredPlan:
        """Return a model in the order in which it was made; it requires no more in the best one."""
        alone = dataclasses.replace(request, run=request.run.metered())
        placed = as_stored(written.module, written.prepared, alone)
        return StoredPlan(placed, alone.run.meter.done)

    def at_most(self, written: WrittenModel, stored: StoredPlan, request: Request) -> int:
        """Return the bytes that a model requires in the order in which it was made."""
        return self._weighed(written.module, stored.placed, request).requirement.weight

    def model(
        self, way: tuple[_Part, ...], written: WrittenModel, request: Request, stored: StoredPlan | None = None
    ) -> tuple[RewrittenModel, float]:
        """Return a way's model with orders and addresses, and the work that they took.

        What they are depends on the limits of ``request`` alone, and not on what was done within it before.

        Args:
            stored: The model in the order in which it was made, where that is known: it counts as work all the same.
        """
        alone = dataclasses.replace(request, run=request.run.metered())
        placed = place(written.module, written.prepared, alone, None if stored is None else stored.placed)
        placed = self._weighed(written.module, placed, request)
        made = RewrittenModel(
            written.module,
            written.data,
            written.prepared,
            placed,
            written.extra_macs,
            written.work,
            self._builder.borders(way),
        )
        return made, alone.run.meter.done + (stored.work if stored else 0.0)

    def _weighed(self, again: Module, placed: ModulePlan, request: Request) -> ModulePlan:
        """Return ``placed`` with the structures that a runtime has for more ops than the base's."""
        prices = self._base.prices(request, self._budget)
        if prices is None or prices.pace is None:
            return placed
        before, after = self._base.given, again.graphs[0]
        more = prices.of_ops(after, after.ops) - prices.of_ops(before, before.ops)
        structures = self._base.placed.requirement.structures + prices.required(0, more)
        return dataclasses.replace(placed, requirement=dataclasses.replace(placed.requirement, structures=structures))
