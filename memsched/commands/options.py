"""The options of commands, each stated once: the command line, the Python API and batches take them from here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["ALLOWED", "BY_DEFAULT", "AnalyzeOptions", "BatchOptions", "OptimizeOptions", "Shown", "option", "shown"]

ALLOWED: Final = ("reorder", "inplace", "tile", "remat")
"""What ``allow`` may name."""

BY_DEFAULT: Final = ("reorder", "inplace")
"""What changes no operator."""

Kind = Literal["text", "size", "budget", "percentage", "allow", "partitions", "named", "number", "flag", "switch"]
"""How the command line writes a value; "named": several values by name, "switch": a flag with its opposite."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How the command line shows an option.

    Attributes:
        flag: With its dashes; None for the name of the field.
        choices: The only values that there are; empty for any.
    """

    help: str
    kind: Kind = "text"
    flag: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()


def option(
    default: Any,
    text: str,
    kind: Kind = "text",
    *,
    flag: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Return a field with its default, and with what the command line says of it."""
    known = {"option": Shown(text, kind, flag, metavar, choices)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=known)
    return dataclasses.field(default=default, metadata=known)


def _said(of: type[Any], name: str, text: str, **values: Any) -> Any:
    """Return the option ``name`` of a command as another command says it."""
    (known,) = [field for field in dataclasses.fields(of) if field.name == name]
    default = values.pop("default", known.default)
    metadata = {"option": dataclasses.replace(shown(known), help=text, **values)}
    return dataclasses.field(default=default, metadata=metadata)


def shown(field: dataclasses.Field[Any]) -> Shown:
    """Return what the command line says of an option."""
    one: Shown = field.metadata["option"]
    return one


@dataclass(frozen=True, slots=True)
class _ModelOptions:
    """How a model is read and for which target, and what may be done to it."""

    target: str | None = option(
        None, "Memory rules; default: the format's runtime's.", flag="--target", metavar="NAME|FILE.toml"
    )
    input_shapes: Mapping[str, tuple[int, ...]] = option(
        {}, "Shape of an input that the model leaves open.", "named", flag="--input-shape", metavar="NAME:1,3,224,224"
    )
    dims: Mapping[str, int] = option({}, "Value of a symbolic dimension.", "named", flag="--dim", metavar="NAME=8")
    budget: int | str | None = option(
        None,
        "What each model's arena may take, such as 256KB, or 50% of what it requires as given.",
        "budget",
        metavar="SIZE|PCT%",
    )
    allow: tuple[str, ...] = option(
        BY_DEFAULT,
        "All that may be done, with commas between. reorder: permute operators; inplace: let outputs take dying "
        "inputs' bytes as the target does; tile: compute groups of layers piece by piece, with some work done twice; "
        "remat: compute values again instead of keeping them; all: all of these.",
        "allow",
        metavar="LIST",
    )

    def permissions(self) -> dict[str, Any]:
        """Return ``allow`` as the Python functions take it, without the orders."""
        return {"in_place": "inplace" in self.allow, "tile": "tile" in self.allow, "remat": "remat" in self.allow}


@dataclass(frozen=True, slots=True)
class BatchOptions(_ModelOptions):
    """What `memsched.optimize` is told for every model of a batch; see there. JSON can hold all of it.

    Attributes:
        allow: As ``--allow`` has it.
        memory_limit: Bytes that the process of each model may hold; see `memory_limit`. `optimize` is not told it.
    """

    max_extra_macs: float = option(
        15.0,
        "With tile or remat in --allow: multiply-accumulates that may come on top, in percent of the model's; for "
        "remat bytes moved count as well.",
        "percentage",
        metavar="PCT",
    )
    time_limit: float | None = option(60.0, "For each search.", "number", metavar="SECONDS")
    effort: float | None = option(
        None,
        "For each search, instead: work of about N seconds on an idle machine; the same result on every machine.",
        "number",
        metavar="N",
    )
    memory_limit: int | None = option(
        None, "What the process of each model may hold, such as 2GB: its search ends there.", "size", metavar="SIZE"
    )
    solver: str = option(
        "auto",
        "auto tries all in turn.",
        choices=("auto", "exact", "cpsat", "backtrack", "greedy", "file"),
    )
    partitions: int | Literal["auto"] = option(
        "auto",
        "Order N stages of the graph apart, without a proof; 1: never.",
        "partitions",
        metavar="N|auto",
    )
    order_guarantee: Literal["none", "session", "pins", "default"] = option(
        "session",
        "ONNX: session options that honour the order are listed, pins in the model hold it in any session, "
        "or the best default order is used.",
        choices=("none", "session", "pins", "default"),
    )
    control_dependencies: bool = option(False, "TFLite: state the order for delegates too.", "flag")
    tflm_plan: bool = option(False, "As in optimize.", "flag")
    verify: bool = option(True, "Run both models and compare outputs.", "switch")
    seed: int = option(0, "Of all that is random.", "number", metavar="N")

    def keywords(self) -> dict[str, Any]:
        """Return them as `memsched.optimize` takes them."""
        values = dataclasses.asdict(self)
        for name in ("allow", "memory_limit"):
            del values[name]
        values["solver"] = self.solver if "reorder" in self.allow else "file"
        return {**values, **self.permissions()}


@dataclass(frozen=True, slots=True)
class OptimizeOptions(BatchOptions):
    """What `memsched.optimize` is told: what a batch says of each model, and what is for one model alone."""

    budget: int | str | None = _said(
        BatchOptions,
        "budget",
        "What the arena may take, such as 256KB, or 50% of what MODEL requires; exit code 3 when that is not enough.",
    )
    time_limit: float | None = _said(BatchOptions, "time_limit", "For the search.")
    effort: float | None = _said(
        BatchOptions,
        "effort",
        "For the search, instead: work of about N seconds on an idle machine; the same result on every machine.",
    )
    memory_limit: int | None = _said(
        BatchOptions,
        "memory_limit",
        "Memory that memsched and its workers may hold, such as 2GB: a search ends there with the best so far.",
    )
    tflm_plan: bool = _said(
        BatchOptions, "tflm_plan", "Targets tflm and its kin: write the tensors' offsets into the model as well."
    )
    workers: int = option(1, "Processes that search independent parts.", "number", metavar="N")


@dataclass(frozen=True, slots=True)
class AnalyzeOptions(_ModelOptions):
    """What `memsched.analyze` is told; all but the model's options are for ``frontier``."""

    budget: int | str | None = _said(
        _ModelOptions,
        "budget",
        "What the arena may take, such as 256KB, or 50% of what MODEL requires; exit code 3 when MODEL needs more.",
    )
    frontier: bool = option(
        False,
        "Show what less memory costs: peaks by extra work, with all that --allow may name unless it is given.",
        "flag",
    )
    max_extra_macs: float = _said(
        BatchOptions,
        "max_extra_macs",
        "With --frontier: multiply-accumulates that may come on top; for remat bytes moved count as well.",
        default=50.0,
    )
    time_limit: float | None = _said(BatchOptions, "time_limit", "With --frontier: for the search.")
    effort: float | None = _said(
        BatchOptions,
        "effort",
        "With --frontier: for the search, instead: work of about N seconds on an idle machine; the same result on "
        "every machine.",
    )
    memory_limit: int | None = _said(
        OptimizeOptions, "memory_limit", shown(OptimizeOptions.__dataclass_fields__["memory_limit"]).help
    )

    def keywords(self) -> dict[str, Any]:
        """Return them as `memsched.analyze` takes them."""
        values = dataclasses.asdict(self)
        for name in ("allow", "memory_limit"):
            del values[name]
        return {**values, **self.permissions(), "reorder": "reorder" in self.allow}
