"""A model's bytes in its new order, read back and checked before anybody gets them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from numbers import Integral

from memsched import __version__
from memsched.base.arguments import checked
from memsched.base.errors import UsageError
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module, OrderGuarantee
from memsched.formats.read_back import check_written
from memsched.formats.stated_sizes import stated
from memsched.graph import dag
from memsched.graph.liveness import Profile, Storage
from memsched.graph.liveness import evaluate as profile_of
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import ORDER_KEEPER
from memsched.runtimes.output import Guarantee, ModelBytes

__all__ = ["check_request", "evaluate", "reorder", "write_model"]


def check_request(module: Module, guarantee: OrderGuarantee, control_dependencies: bool) -> None:
    """Refuse what the module's format has no means for.

    Raises:
        UsageError: Pins or the default order for TFLite, or control dependencies for ONNX.
    """
    binds = format_of(module).traits.order_binds
    if binds and guarantee in {"pins", "default"}:
        raise UsageError(
            f"--order-guarantee {guarantee} is for ONNX: a TFLite file's order binds every runtime",
            code="other-format",
            action="leave it out",
        )
    if not binds and control_dependencies:
        raise UsageError(
            "--control-dependencies is for TFLite",
            code="other-format",
            action="use --order-guarantee session or pins for ONNX",
        )


def write_model(
    module: Module,
    data: bytes,
    plans: Sequence[GraphPlan],
    options: LoadOptions,
    *,
    guarantee: OrderGuarantee,
    control_dependencies: bool,
    target: str,
    keep: bool = False,
    promised: bool = False,
) -> ModelBytes:
    """Return the model in the plans' orders; ``data``, byte for byte, where no order changed and nothing is added.

    Args:
        keep: Nothing is better than the file as given: return it, whatever was asked for.
        promised: As `ModelBytes.promised`.

    Raises:
        InternalError: What was written, read back, is not the same ops on the same tensors in the planned order.
    """
    if format_of(module).traits.order_binds:
        return _write_binding(module, data, plans, options, control_dependencies)
    if keep:
        return ModelBytes(data, True, Guarantee(guarantee, pins=0 if guarantee == "pins" else None))
    if guarantee == "pins":
        return _write_pinned(module, data, plans, options, target)
    written = _write_for_sessions(module, data, plans, options, guarantee, target)
    return dataclasses.replace(written, promised=promised)


def _orders(plans: Sequence[GraphPlan]) -> dict[int, tuple[int, ...]]:
    return {index: plan.stored_order for index, plan in enumerate(plans)}


def _write_binding(
    module: Module, data: bytes, plans: Sequence[GraphPlan], options: LoadOptions, control_dependencies: bool
) -> ModelBytes:
    form, orders = format_of(module), _orders(plans)
    guarantee = Guarantee("control_dependencies" if control_dependencies else "file")
    model = form.reorder(module, orders, {}, control_dependencies=control_dependencies)
    if model == data:
        return ModelBytes(data, True, guarantee)
    check_written(module, model, orders, options)
    return ModelBytes(model, False, guarantee, form.notes(module, orders, control_dependencies=control_dependencies))


def _write_for_sessions(
    module: Module, data: bytes, plans: Sequence[GraphPlan], options: LoadOptions, kind: OrderGuarantee, target: str
) -> ModelBytes:
    guarantee = Guarantee(kind, ORDER_KEEPER.instructions(kind) if kind != "none" else ())
    if not any(plan.reordered for plan in plans):
        return ModelBytes(data, True, guarantee)
    orders = _orders(plans)
    model = format_of(module).reorder(module, orders, _metadata(kind, plans[0], target))
    check_written(module, model, orders, options)
    return ModelBytes(model, False, guarantee)


@checked
def reorder(
    module: Module,
    order: Sequence[int],
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> bytes:
    """Return a model's file with the operators of its main graph in an order of your own.

    The file is read back and compared with ``module`` before it is returned. A TFLite file's order binds every
    runtime; ONNX Runtime has to be told to keep it (``onnxruntime.ExecutionOrder.PRIORITY_BASED``).

    Args:
        module: From `memsched.load`, or a result's ``module``.
        order: Indices of ``module.graph.ops``, each once, in order of execution.
        input_shapes: As the module was loaded with, and so are ``dims``.

    Raises:
        UsageError: Not every operator occurs once, or one would run before an operator that it needs.
        ModelError: The file is laid out so that it cannot be reordered.
    """
    _check_order(order, [op.name for op in module.graph.ops], dag.predecessors(module.graph))
    orders = {0: tuple(order)}
    model = format_of(module).reorder(module, orders, {})
    check_written(module, model, orders, stated(input_shapes, dims))
    return model


@checked
def evaluate(storage: Storage, order: Sequence[int]) -> Profile:
    """Return what an order of your own costs, in linear time.

    Args:
        storage: From `Storage.of`.
        order: Indices of the operators, each once, in order of execution.

    Raises:
        UsageError: Not every operator occurs once, or one would run before an operator that it needs.
    """
    _check_order(order, [str(op) for op in range(len(storage.preds))], storage.preds)
    return profile_of(storage, order)


def _check_order(order: Sequence[object], names: Sequence[str], needed: Sequence[Sequence[int]]) -> None:
    steps: dict[object, int] = {op: step for step, op in enumerate(order) if isinstance(op, Integral)}
    if len(order) != len(names) or steps.keys() != set(range(len(names))):
        raise UsageError(
            f"the order has to name each of the {len(names)} operators once, by its number from 0", code="not-an-order"
        )
    for op, befores in enumerate(needed):
        for before in befores:
            if steps[before] > steps[op]:
                raise UsageError(f"'{names[op]}' needs '{names[before]}', which runs after it", code="runs-too-early")


def _metadata(guarantee: OrderGuarantee, main: GraphPlan, target: str) -> Mapping[str, str]:
    if guarantee == "none":
        return {}
    return {
        "memsched.version": __version__,
        "memsched.target": target,
        "memsched.peak_bytes": str(main.checked.peak),
        "memsched.lower_bound_bytes": str(main.schedule.lower_bound),
    }


def _write_pinned(
    module: Module, data: bytes, plans: Sequence[GraphPlan], options: LoadOptions, target: str
) -> ModelBytes:
    """Write the orders with dependencies added that leave no other order possible."""
    keeper, orders = ORDER_KEEPER, _orders(plans)
    ordered = format_of(module).reorder(module, orders, {})
    pinned = keeper.pin(ordered, module.path, _metadata("pins", plans[0], target))
    guarantee = Guarantee("pins", keeper.instructions("pins"), pinned.pins)
    check_written(module, pinned.data, orders, options, added=pinned.pins > 0)
    return ModelBytes(pinned.data, not pinned.pins and ordered == data, guarantee, pinned.notes)
