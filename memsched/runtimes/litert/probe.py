"""What LiteRT itself says about a loaded model: the order it executes, and where it put the tensors.

Python shows neither, but a delegate is told both: its Prepare function gets the context of LiteRT's C interface
(`tflite/core/c/common.h`), whose structures are stable so that delegates can be shipped apart. This one delegates
nothing; it only looks. Every structure is compared with what Python shows before anything is believed.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

import numpy as np

from memsched.base.frozen import FrozenValue
from memsched.lowering.litert_kernels import ALIGNMENT

__all__ = ["Probe", "probe"]

_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GET_PLAN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_GET_NODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p)
)

_TENSOR_STRIDES = range(104, 161, 8)


class _AllocationType(IntEnum):
    """Where tensors lie, as TfLiteAllocationType has it."""

    FILE = 1
    ARENA = 2
    PERSISTENT_ARENA = 3
    HEAP = 4
    """Where sizes are known only while the model runs; and some that kernels keep."""


class _Context(ctypes.Structure):
    _fields_ = (
        ("tensors_size", ctypes.c_size_t),
        ("get_execution_plan", _GET_PLAN),
        ("tensors", ctypes.c_void_p),
        ("impl", ctypes.c_void_p),
        ("resize_tensor", ctypes.c_void_p),
        ("report_error", ctypes.c_void_p),
        ("add_tensors", ctypes.c_void_p),
        ("get_node_and_registration", _GET_NODE),
    )


class _Delegate(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("prepare", _PREPARE),
        ("copy_from_buffer_handle", ctypes.c_void_p),
        ("copy_to_buffer_handle", ctypes.c_void_p),
        ("free_buffer_handle", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("opaque_delegate_builder", ctypes.c_void_p),
    )


class _Node(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("intermediates", ctypes.c_void_p),
        ("temporaries", ctypes.c_void_p),
        ("user_data", ctypes.c_void_p),
        ("builtin_data", ctypes.c_void_p),
        ("custom_initial_data", ctypes.c_void_p),
        ("custom_initial_data_size", ctypes.c_int),
        ("delegate", ctypes.c_void_p),
    )


class _TfLiteTensor(ctypes.Structure):
    """The fields that matter; the structure is longer."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("dims", ctypes.c_void_p),
        ("scale", ctypes.c_float),
        ("zero_point", ctypes.c_int32),
        ("allocation_type", ctypes.c_int),
        ("bytes", ctypes.c_size_t),
    )


class Probe(FrozenValue, frozen=True):
    """What was seen.

    Attributes:
        order: The main subgraph's operators in the order of execution, those of delegates included; None if unclear.
        arena_bytes: Bytes from the first to behind the last tensor in LiteRT's arenas, alignment, kernels' temporary
            tensors and state included, and those of tensors on the heap; None if unclear.
    """

    order: tuple[int, ...] | None
    arena_bytes: int | None


def probe(interpreter: Any, operators: int) -> Probe:
    """Look into an ``ai_edge_litert`` interpreter that has run; it must not be used afterwards.

    Before its first run the operators behind one whose output's size depends on data have no memory yet.

    Args:
        operators: How many operators the main subgraph has in the file.
    """
    seen: list[Probe] = []

    def prepare(context_address: int, _: int) -> int:
        try:
            context = _Context.from_address(context_address)
            order = _order(context_address, context, operators)
            seen.append(Probe(order, _arena(context, interpreter)))
        except Exception:  # an exception cannot pass through C
            seen.clear()
        return 0

    callback = _PREPARE(prepare)
    delegate = _Delegate(prepare=callback, flags=1)
    # The interpreter keeps the address for as long as it lives.
    interpreter.memsched_probe = (callback, delegate)
    interpreter._interpreter.ModifyGraphWithDelegate(ctypes.addressof(delegate))
    return seen[0] if seen else Probe(None, None)


def _integers(address: int | None) -> list[int]:
    """Read a TfLiteIntArray: a count and that many integers."""
    if not address:
        return []
    count = ctypes.c_int.from_address(address).value
    return list((ctypes.c_int * count).from_address(address + ctypes.sizeof(ctypes.c_int)))


def _order(address: int, context: _Context, operators: int) -> tuple[int, ...] | None:
    plan = ctypes.c_void_p()
    if context.get_execution_plan(address, ctypes.byref(plan)) != 0:
        return None
    order: list[int] = []
    for index in _integers(plan.value):
        if index < operators:
            order.append(index)
            continue
        node, registration = ctypes.c_void_p(), ctypes.c_void_p()
        code = context.get_node_and_registration(address, index, ctypes.byref(node), ctypes.byref(registration))
        if code != 0 or not node.value:
            return None
        parameters = _Node.from_address(node.value).builtin_data
        if not parameters:
            return None
        # TfLiteDelegateParams: the delegate, then the nodes that it replaced, in the order in which it got them.
        order.extend(_integers(ctypes.c_void_p.from_address(parameters + ctypes.sizeof(ctypes.c_void_p)).value))
    return tuple(order) if sorted(order) == list(range(operators)) else None


def _arena(context: _Context, interpreter: Any) -> int | None:
    if interpreter.num_subgraphs() != 1:
        return None
    expected = [(detail["index"], _sizes(detail)) for detail in interpreter.get_tensor_details()]
    for stride in _TENSOR_STRIDES:
        places = range(context.tensors, context.tensors + stride * context.tensors_size, stride)
        if all(_fits(_TfLiteTensor.from_address(places[index]), sizes) for index, sizes in expected):
            return _span([_TfLiteTensor.from_address(place) for place in places])
    return None


def _fits(tensor: _TfLiteTensor, sizes: tuple[int, ...]) -> bool:
    """Whether a tensor has one of ``sizes``; constants may be stored sparse."""
    return not sizes or tensor.bytes in sizes or tensor.allocation_type == _AllocationType.FILE


def _sizes(detail: Any) -> tuple[int, ...]:
    """Return the bytes that a tensor may have by what Python shows: 4-bit types look like bytes; text like anything."""
    kind = np.dtype(detail["dtype"])
    if kind.kind in "OSU":
        return ()
    elements = int(np.prod(detail["shape"], dtype=np.int64))
    return (elements, (elements + 1) // 2, (elements + 3) // 4) if kind.itemsize == 1 else (elements * kind.itemsize,)


def _span(tensors: list[_TfLiteTensor]) -> int | None:
    heap = [tensor.bytes for tensor in tensors if tensor.allocation_type == _AllocationType.HEAP and tensor.data]
    total = sum(size for size in heap if size >= ALIGNMENT)
    for arena in (_AllocationType.ARENA, _AllocationType.PERSISTENT_ARENA):
        inside = [tensor for tensor in tensors if tensor.allocation_type == arena and tensor.data and tensor.bytes]
        if inside:
            span = max(tensor.data + tensor.bytes for tensor in inside) - min(tensor.data for tensor in inside)
            # Tensors of one arena lie close together; anything else was read wrongly.
            if span > sum(tensor.bytes + 64 for tensor in inside):
                return None
            total += span
    return total or None
