"""What is asked of the child process that compares two models in LiteRT, and what it answers."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["CompareRequest", "ModeAnswer", "ModeAnswers", "SizesAnswer", "SizesRequest"]


class CompareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Two models to compare.

    Attributes:
        before: The file as given.
        after: The optimised file.
        runs: How many random inputs.
        probe: Look inside as well, at order and arena.
        borders: What stands between the inputs and outputs of both; see `memsched.runtimes.borders.told`.
        kernels: Layers of the optimised file that delegates take in the other one are left to built-in kernels.
    """

    before: bytes
    after: bytes
    runs: int
    seed: int
    probe: bool
    borders: list[dict[str, Any]] = msgspec.field(default_factory=list)
    kernels: bool = False


class ModeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of running both models showed; where one of them was refused, only that.

    Attributes:
        before_error: Why the model as given could not be loaded or run.
        after_error: The same for the optimised one.
        equal: Outputs are equal bit by bit.
        repeatable: The model as given gives the same outputs twice.
        vary: Its outputs vary from input to input; None for a single run.
        own_error: With `kernels`, and if outputs differ by no more than that explains, the largest difference between
            the model's own outputs with and without delegates; else None.
        order_before: Operators as they are executed; None where that was not seen.
        arena_before: Bytes; None where they were not seen.
    """

    before_error: str | None = None
    after_error: str | None = None
    runs: int = 0
    equal: bool | None = None
    max_abs_error: float = 0.0
    relative_error: float = 0.0
    repeatable: bool = True
    vary: bool | None = None
    own_error: float | None = None
    order_before: tuple[int, ...] | None = None
    order_after: tuple[int, ...] | None = None
    arena_before: int | None = None
    arena_after: int | None = None

    def near(self, tolerance: float) -> bool:
        """Return whether outputs differ, though by no more than a relative error of ``tolerance``."""
        return self.equal is False and self.repeatable and self.relative_error <= tolerance


class ModeAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """Without delegates, and with those that LiteRT applies by itself."""

    plain: ModeAnswer
    default: ModeAnswer


class SizesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Two models to compare at sizes that the first leaves open; see `CompareRequest`.

    Attributes:
        tolerance: Relative error that is permitted.
        atol: Absolute error that is permitted.
        kernels: As `CompareRequest` has it.
    """

    before: bytes
    after: bytes
    seed: int
    tolerance: float
    atol: float
    borders: list[dict[str, Any]]
    kernels: bool = False


class SizesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the second model.

    Attributes:
        sizes: Fields of `memsched.runtimes.values.OtherSize`.
        untried: Dimensions of which the first model takes no other size that was tried.
    """

    sizes: list[dict[str, Any]]
    untried: list[str]
