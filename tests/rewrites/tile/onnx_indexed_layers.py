"""Random ONNX layers that read or write elements by their indices."""

from __future__ import annotations

import numpy as np

from tests.rewrites.tile.onnx_layer import Array, Layer, R, shape_of, whole_numbers


def numbers_below(r: R, shape: tuple[int, ...], limit: int) -> Array:
    """Return indices of an axis, some counted from its end."""
    seed = np.random.default_rng(r.randrange(1 << 30))
    return np.asarray(seed.integers(-limit, limit, shape))


def places_of(r: R, shape: tuple[int, ...], depth: int, count: tuple[int, ...]) -> Array:
    """Return different index vectors into the first ``depth`` axes of ``shape``, as an array of them."""
    seed = np.random.default_rng(r.randrange(1 << 30))
    limits = shape[:depth]
    flat = seed.permutation(int(np.prod(limits)))[: int(np.prod(count))].reshape(count)
    return np.stack(np.unravel_index(flat, limits), -1).astype(np.int64)


def indexed(r: R, layer: Layer, *arrays: Array) -> Layer:
    """Give a layer its operands, each an activation or a constant, one an activation at the least."""
    activations = {r.randrange(len(arrays)), *(at for at in range(len(arrays)) if r.random() < 0.5)}
    for at, array in enumerate(arrays):
        layer.give(array) if at in activations else layer.state(array)
    return layer


def gather(r: R) -> Layer:
    shape = shape_of(r, r.randint(1, 4), 1, 6)
    axis = r.randrange(len(shape))
    layer = Layer("Gather", attributes={"axis": r.choice([axis, axis - len(shape)])})
    return indexed(r, layer, whole_numbers(r, shape), numbers_below(r, shape_of(r, r.randint(0, 2), 1, 4), shape[axis]))


def gather_nd(r: R) -> Layer:
    shape = shape_of(r, r.randint(1, 4), 1, 5)
    shared = r.randrange(len(shape))
    depth = r.randint(1, len(shape) - shared)
    outer = (*shape[:shared], *shape_of(r, r.randint(0, 2), 1, 3))
    columns = [numbers_below(r, outer, shape[shared + at]) for at in range(depth)]
    layer = Layer("GatherND", attributes={"batch_dims": shared})
    return indexed(r, layer, whole_numbers(r, shape), np.stack(columns, -1))


def scatter_nd(r: R) -> Layer:
    shape = shape_of(r, r.randint(1, 4), 2, 5)
    depth = r.randint(1, len(shape))
    count = (r.randint(1, min(3, shape[0])),)
    places = places_of(r, shape, depth, count)
    layer = Layer("ScatterND", attributes=r.choice([{}, {"reduction": "add"}, {"reduction": "mul"}]))
    return indexed(r, layer, whole_numbers(r, shape), places, whole_numbers(r, (*count, *shape[depth:])))


def elements(r: R) -> Layer:
    """GatherElements and ScatterElements, with as many indices as elements on most axes."""
    shape = shape_of(r, r.randint(1, 4), 1, 6)
    axis = r.randrange(len(shape))
    told = tuple(r.randint(1, size) if at == axis or r.random() < 0.3 else size for at, size in enumerate(shape))
    if r.random() < 0.5:
        layer = Layer("GatherElements", attributes={"axis": r.choice([axis, axis - len(shape)])})
        return indexed(r, layer, whole_numbers(r, shape), numbers_below(r, told, shape[axis]))
    column = np.array(r.sample(range(shape[axis]), told[axis]))
    numbers = np.broadcast_to(column.reshape([-1 if at == axis else 1 for at in range(len(shape))]), told).copy()
    layer = Layer("ScatterElements", attributes={"axis": axis})
    return indexed(r, layer, whole_numbers(r, shape), numbers, whole_numbers(r, told))
