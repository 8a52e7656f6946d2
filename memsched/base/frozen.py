"""Frozen values, whose kinds are defined and which are made many times as quickly as those of frozen dataclasses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import msgspec

__all__ = ["FrozenValue"]


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> dict[str, dataclasses.Field[Any]]:
    made: Any = dataclasses.make_dataclass(kind.__name__, kind.__struct_fields__)
    return dict(made.__dataclass_fields__)


class _DataclassFields:
    """The fields of a kind of value as those of a dataclass."""

    def __get__(self, _: object, kind: type[msgspec.Struct]) -> dict[str, dataclasses.Field[Any]]:
        return _fields_of(kind)


class FrozenValue(msgspec.Struct, frozen=True):
    """A value of named parts that never changes, for `dataclasses.replace` a dataclass.

    Kinds with very many values, no part of which leads back to them, say ``gc=False``: nothing follows them.
    """

    __dataclass_fields__: ClassVar[Any] = _DataclassFields()
