"""Frozen values that are no dataclasses: what `dataclasses.replace` makes of them, and that nothing changes them."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from memsched.base.frozen import FrozenValue
from memsched.graph.model import InPlace, Op, Placement, Tensor

VALUES = (
    Tensor("x", 8, (2,), "float32", True, False, ("n",)),
    Op("a", "Add", (0, 1), (2,), attributes={"axis": 1}, positions=(0, 1), macs=3),
    InPlace(1, 2, 3),
    Placement((1, 7), 2, 4, 0, 7),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_its_parts_and_stays_what_it_is(value: FrozenValue) -> None:
    names = value.__struct_fields__
    assert [field.name for field in dataclasses.fields(value)] == list(names)
    for name in names:
        with pytest.raises(AttributeError):
            setattr(value, name, None)
        changed = dataclasses.replace(value, **{name: None})
        assert [getattr(changed, other) for other in names if other != name] == [
            getattr(value, other) for other in names if other != name
        ]
        assert getattr(changed, name) is None
        assert changed != value or getattr(value, name) is None
    assert pickle.loads(pickle.dumps(value)) == value == dataclasses.replace(value)  # noqa: S301 - made here
    unknown = {"nothing": None}
    with pytest.raises(TypeError):
        dataclasses.replace(value, **unknown)
