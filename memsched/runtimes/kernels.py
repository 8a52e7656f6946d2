"""How long each operator of a model takes in its runtime, measured in a process of its own."""

from __future__ import annotations

from memsched.base.errors import UsageError, VerificationError
from memsched.formats.module import Module
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.known import row_runner_of

__all__ = ["kernel_seconds"]


def kernel_seconds(module: Module, data: bytes, *, seed: int = 0) -> dict[str, float]:
    """Return the seconds of every operator by name; those that the runtime does not execute are missing.

    Args:
        module: As it was read from ``data``.

    Raises:
        RuntimeUnavailableError: The runtime is not installed.
        UsageError: The runtime does not say how long single operators take.
        VerificationError: The model does not run.
    """
    runner = row_runner_of(module.format)
    if runner.kernels is None:
        raise UsageError(f"{runner.name} does not say how long single operators take", code="no-operator-times")
    runner.package.require()
    request = {**runner.row_request(module), "model": data, "seed": seed}
    result = run_in_child(runner.kernels, request, TIMEOUT)
    if not result.ok:
        raise VerificationError(
            f"the model does not run: {result.reason[:400]}",
            code="not-run",
            location=module.path,
        )
    found: dict[str, float] = result.value
    return found
