"""The interface that runs the files of a format; `memsched.runtimes.known` lists its makers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from memsched.base.frozen import FrozenValue
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.graph.border import Border
from memsched.graph.model import Graph
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.package import RuntimePackage
from memsched.runtimes.values import RunnerName, Verification

__all__ = ["CompareFiles", "RowRunner", "Runner", "VerifyRequest"]


class VerifyRequest(FrozenValue, frozen=True):
    """A model, and the one that was written of it.

    Attributes:
        module: As it was read from ``data``, or what it was rewritten to.
        data: The file as given.
        options: What states the sizes of both.
        seed: Of the inputs.
        tolerance: Relative error that is permitted, where pieces are added up in another order.
        predicted: What the runtime should show of both models, bytes; None where ``written`` says so, or nothing.
        plain_tolerance: Relative error permitted without delegates, if callers open files with delegates; None:
            ``tolerance``.
        kernels: Layers of ``written`` are left to other kernels, with which the model as given rounds otherwise, too.
    """

    module: Module
    data: bytes
    written: ModelBytes
    options: LoadOptions
    seed: int
    tolerance: float
    predicted: tuple[int, int] | None
    plain_tolerance: float | None = None
    kernels: bool = False


class CompareFiles(FrozenValue, frozen=True):
    """Two models to run on the same random inputs.

    Attributes:
        options: What states the sizes of both.
        runs: How many inputs.
        rtol, atol: Outputs are close within ``atol + rtol * |output|``.
        seed: Of the inputs.
        borders: What stands between the inputs and outputs of both; the second has them in another form.
        timeout_seconds: For each child process, which then counts as one that could not be run.
    """

    first: Path | bytes
    second: Path | bytes
    options: LoadOptions
    runs: int
    rtol: float
    atol: float
    seed: int
    borders: tuple[Border, ...] = ()
    timeout_seconds: float = 600.0


class Runner(Protocol):
    """Runs models in child processes, compares their outputs, and measures what they need.

    Attributes:
        name: In one word, as the command line has it.
        format: Of the files that it runs.
        package: What has to be installed.
    """

    @property
    def name(self) -> RunnerName: ...  # noqa: D102 - above
    @property
    def format(self) -> FormatName: ...  # noqa: D102 - above
    @property
    def package(self) -> RuntimePackage: ...  # noqa: D102 - above

    def verify(self, asked: VerifyRequest) -> Verification:
        """Compare a model with the one written: outputs, measured peaks and the executed order.

        Raises:
            RuntimeUnavailableError: The runtime is not installed.
        """

    def compare(self, asked: CompareFiles) -> tuple[bool | None, Verification]:
        """Run two models on the same random inputs.

        Returns:
            Whether the outputs are equal or within the tolerance, None where that is unknown; and what was seen.

        Raises:
            RuntimeUnavailableError: The runtime is not installed.
            UsageError: The runtime knows no such tolerance.
        """


class RowRunner(Runner, Protocol):
    """Runs the segments of a model in a row as well.

    Attributes:
        row: What runs a model and its segments, as `memsched.runtimes.child.run_in_child` takes it.
        row_special: What runs them on special values.
        other_mode: How they are run the second time, in words.
        kernels: What measures each operator of a model, likewise; None where the runtime does not say that.
        parts: The `PartRuntime` that executes parts of models on devices, "package.module:Class".
    """

    @property
    def row(self) -> str: ...  # noqa: D102 - above
    @property
    def row_special(self) -> str: ...  # noqa: D102 - above
    @property
    def other_mode(self) -> str: ...  # noqa: D102 - above
    @property
    def kernels(self) -> str | None: ...  # noqa: D102 - above

    @property
    def parts(self) -> str: ...  # noqa: D102 - above

    def part_bytes(self, module: Module, graph: Graph, data: Callable[[], bytes]) -> int:
        """Return the bytes in use beside its inputs while a part of ``module`` runs; ``data`` makes its file."""

    def row_request(self, module: Module) -> Mapping[str, Any]:
        """Return what `row` must know of the model beside its bytes."""
