"""The ways in which every model is optimised: the options of `memsched.optimize`, and what they let outputs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["ONNX_WAYS", "TFLITE_WAYS", "VERIFIED", "Way"]

EFFORT = 0.3
"""Of each search; the same result on every machine."""


@dataclass(frozen=True)
class Way:
    """Options of `optimize`.

    Attributes:
        exact: The same bits are promised.
        session: The file is the graph of a session without options, and is compared with what such a session makes.
        verified: `optimize` runs both files itself, in processes of its own, which takes a second.
    """

    name: str
    options: Mapping[str, Any]
    exact: bool = False
    session: bool = False
    verified: bool = False


def _way(name: str, *, exact: bool = False, session: bool = False, verified: bool = False, **options: Any) -> Way:
    given = {"effort": EFFORT, "verify": verified, **options}
    return Way(name, MappingProxyType(given), exact, session, verified)


_WORK: Mapping[str, Any] = {"max_extra_macs": 1000.0, "max_slowdown": None}
_ALL: Mapping[str, Any] = {"allow": ("all",), **_WORK}
_NAMED: Mapping[str, Any] = {"allow": ("all", "algebra", "reassociate", "fuse"), **_WORK}

ONNX_WAYS = (
    _way("order", exact=True),
    _way("-O2", level=2),
    _way("-O3", level=3),
    # Not exact: a rewritten file has the weights that sessions multiply by scales, which other sessions round later.
    _way("remat", allow=("reorder", "inplace", "remat"), **_WORK),
    _way("all", **_ALL),
    _way("all, half", **_ALL, budget="50%", keep_best=True),
    _way("all, by name", **_NAMED),
    _way("all, session", **_ALL, order_guarantee="session"),
    _way("all, pins", **_ALL, order_guarantee="pins"),
    _way("all, default order", **_ALL, order_guarantee="default"),
)
"""In one process, and so for every model."""

VERIFIED = (
    _way("default", exact=True, verified=True),
    _way("default session", session=True, verified=True, session_="default"),
    _way("default session, all", session=True, verified=True, session_="default", **_ALL),
    _way("all, by name, verified", **_NAMED, verified=True),
)
"""With sessions in processes of their own: as long as everything else together."""

TFLITE_WAYS = tuple(
    _way(f"{target}, {name}", exact=True, verified=True, target=target, **options)
    for target in ("litert", "tflm", "tflm-reference")
    for name, options in (
        ("default", {}),
        ("-O3", {"level": 3}),
        ("all", _ALL),
        ("all, half", {**_ALL, "budget": "50%", "keep_best": True}),
    )
)
