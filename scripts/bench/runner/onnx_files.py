"""The ONNX models that a benchmark is named: files, or networks of the catalogue with weights that are random."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnx

from memsched.cli.options import parse_dims, parse_shapes
from memsched.formats.module import LoadOptions
from scripts.bench.runner.declare import Option, Values, option, positional
from scripts.networks.catalogue import EXPORTED, build
from scripts.networks.random_weights import randomised

__all__ = ["LISTED", "NAMED", "STATED", "model_file", "shape_options", "stated_shapes"]

LISTED: Final = tuple(EXPORTED)
"""Networks that are named, not given as files."""

NAMED: Final = positional("models", help=f"ONNX files, or of {', '.join(LISTED)}", metavar="MODEL")
"""What is measured, as a command line names it."""

STATED: Final[tuple[Option, ...]] = (
    option("--shape", action="append", default=[], metavar="NAME=1,3,224,224", help="as optimize has it"),
    option("--dim", action="append", default=[], metavar="NAME=8", help="as optimize has it"),
)
"""What is stated of sizes that models leave open."""


def stated_shapes(values: Values) -> LoadOptions:
    """Return what the options of `STATED` say."""
    return LoadOptions(parse_shapes(values.shape), parse_dims(values.dim))


def shape_options(options: LoadOptions) -> list[str]:
    """Return the same as options of memsched's command line."""
    shapes = [f"--shape={name}={','.join(map(str, shape))}" for name, shape in options.input_shapes.items()]
    return [*shapes, *(f"--dim={name}={value}" for name, value in options.dims.items())]


def model_file(model: str, folder: Path) -> Path:
    """Return the file of a model; a network of `LISTED` is written to ``folder``, the same whenever it is."""
    if model not in LISTED:
        return Path(model)
    path = folder / f"{model}.onnx"
    onnx.save(randomised(build(model), seed=0), str(path))
    return path
