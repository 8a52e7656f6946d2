"""What running a model before and after showed, whatever the runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, Protocol

from memsched.base.frozen import FrozenValue
from memsched.base.shown import LONGEST_REASON

__all__ = [
    "BOUND",
    "CLOSE",
    "EXECUTED_TOLERANCE",
    "INTEGER_BOUNDS",
    "INVOKES",
    "RUNS",
    "SAME_SEEDS",
    "MeasuredArena",
    "OtherSize",
    "RunnerName",
    "Verification",
]
__all__ += ["as_opened", "candidate_sizes", "missed_by", "one_line", "peaks_off", "short_reason"]

RunnerName = Literal["onnxruntime", "litert", "tflm"]
"""What runs models, as the command line has it."""

SAME_SEEDS: Final = "both were run with the same seeds"
"""What notes say of models that draw random numbers."""

INVOKES: Final = 2
"""Runs in a row of a model with a state on one input: what the first leaves behind, the second meets."""

STAGED: Final = 1.5
"""What stages take together, as a multiple of what the whole model does: they may do extra work and are set up anew."""

RUNS: Final = 3
"""Random inputs on which models are compared."""

BOUND: Final = 2
"""Random integers are below this where they may be ids, positions, or masks of what counts."""

INTEGER_BOUNDS: Final = (4, BOUND, 1)
"""Exclusive bounds tried for integer inputs: they may be indices into an axis of unknown length."""

EXECUTED_TOLERANCE: Final = 1e-3
"""Relative error of outputs where the runtime optimised the model: kernels of the same level that run in another order,
or with other threads, round alike; those of another level do not."""

CLOSE: Final = 0.02
"""Relative error up to which what is measured agrees: peaks with those predicted, processes with each other, and median
ratios of times, of which what is said shall hold within 5 %."""


def one_line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def short_reason(reason: str, most: int = LONGEST_REASON) -> str:
    """Return why something failed, in so many characters at most."""
    return reason if len(reason) <= most else f"{reason[: most - 3]}..."


class ShownPeaks(Protocol):
    """Peaks of a model before and after, measured and predicted, as a verification or a report's section has them."""

    @property
    def measured_peak_before_bytes(self) -> int | None: ...

    @property
    def measured_peak_after_bytes(self) -> int | None: ...

    @property
    def predicted_peak_before_bytes(self) -> int | None: ...

    @property
    def predicted_peak_after_bytes(self) -> int | None: ...


def peaks_off(shown: ShownPeaks) -> float:
    """Return the largest share by which a measured peak misses the one predicted; 0 where nothing is known."""
    pairs = (
        (shown.measured_peak_before_bytes, shown.predicted_peak_before_bytes),
        (shown.measured_peak_after_bytes, shown.predicted_peak_after_bytes),
    )
    known = [(measured, predicted) for measured, predicted in pairs if measured is not None and predicted]
    return max((abs(measured - predicted) / predicted for measured, predicted in known), default=0.0)


def missed_by(shown: ShownPeaks, *, in_arena: bool, at_stated_sizes: bool) -> float:
    """Return the same of predictions that peaks can speak against: those of an arena, and of other sizes, they cannot.

    Args:
        in_arena: Whether an arena was measured for the model after; it is compared by itself.
    """
    return 0.0 if in_arena or not at_stated_sizes else peaks_off(shown)


def candidate_sizes(size: int) -> list[int]:
    """Return other sizes, those first that most networks accept; all are positive."""
    near = (
        size + max(1, size // 4),
        size // 2,
        2 * size,
        size + 2,
        size + 32,
        size + 1,
        size - 1,
        3 * size,
        size + 8,
        1,
    )
    return [one for one in dict.fromkeys(near) if one > 0 and one != size]


class OtherSize(FrozenValue, frozen=True):
    """What became of a model at a size that it was not optimised for, where the model as given leaves the size open.

    Attributes:
        dimension: Its name, or the input and axis as "input[axis]"; several that must change together, with commas.
        size: As the model as given accepts it.
        outcome: "refused" (the runtime says that the size is wrong), "equal" (the outputs of the model as given) or
            "wrong" (anything else).
        reason: What is wrong, or how the runtime refuses it; None for equal outputs.
    """

    dimension: str
    size: int
    outcome: Literal["refused", "equal", "wrong"]
    reason: str | None


class MeasuredArena(FrozenValue, frozen=True):
    """An arena of TensorFlow Lite Micro, bytes: its planned part at one end, what stays at the other.

    Attributes:
        measured_head: None where the model was refused.
        predicted_head: What should have been measured; None where nothing predicts it, as with unknown kernels.
        measured_least: The smallest arena that runs: planning may take more for a moment than both parts.
        seconds: The shortest invocation; None if the model was refused.
    """

    measured_head: int | None
    measured_tail: int | None
    predicted_head: int | None
    predicted_tail: int | None
    measured_least: int | None = None
    predicted_least: int | None = None
    seconds: float | None = None

    @property
    def measured_total(self) -> int | None:
        """Both parts together."""
        return _total(self.measured_head, self.measured_tail)

    @property
    def predicted_total(self) -> int | None:
        """Both parts together."""
        return _total(self.predicted_head, self.predicted_tail)

    @property
    def as_predicted(self) -> bool | None:
        """Whether both parts are those predicted, to the byte; None where one was not measured or not predicted."""
        if self.measured_total is None or self.predicted_total is None:
            return None
        return (self.measured_head, self.measured_tail) == (self.predicted_head, self.predicted_tail)


def _total(head: int | None, tail: int | None) -> int | None:
    return None if head is None or tail is None else head + tail


class Verification(FrozenValue, frozen=True):
    """The comparison of a model as given with the optimised one, both run in a real runtime.

    Attributes:
        runtime: Name and version, such as "onnxruntime 1.31.1" or "litert 2.3.0".
        runs: Input sets that were compared; 0 when nothing could be run.
        outputs_equal: Bit-equal on all of them; None when it could not be run.
        max_abs_error: Largest absolute difference of any output element; None when it could not be run.
        measured_peak_before_bytes: Peak activation memory that the runtime itself measured, bytes; None if it cannot.
        measured_peak_after_bytes: The same for the optimised model.
        executed_order_matches: Whether the runtime executed the file's order; None when that could not be seen.
        reason: Why something above is None or False, in words for the report.
        notes: What else the report must say.
        predicted_peak_before_bytes: What should have been measured before; None where nothing predicts it.
        predicted_peak_after_bytes: The same for the optimised model.
        relative_error: Largest difference of any output by that output's largest magnitude; infinite for integers
            that differ; None when it could not be run.
        measured_with: Lines of code that open the sessions in which both peaks were measured; empty where the runtime
            has no such choice.
        default_session: The session that people open without options, in words.
        default_peak_before_bytes: What a session without options needs for the model as given, bytes, in its first run
            or in the next; None where that was not measured.
        default_peak_after_bytes: The same for the optimised model.
        default_relative_error: Largest difference of any output of the model as given in a session without options to
            that of the optimised model in the session that is promised, by its largest magnitude; None where both are
            the same session, or one was not run.
        default_apart: The same of the optimised model to the model as given, both in a session without options: 0 for
            equal bits; None where one was not run there.
        own_error: Where layers are left to other kernels, and outputs differ by no more than that explains: the largest
            difference between the outputs of the model as given with both; else None.
        outputs_vary: Whether the outputs of the model as given differ from input to input, so that equal outputs say
            something; None when that is unknown, as with a single run.
        other_sizes: How the optimised model fares at other sizes.
        arenas: What TensorFlow Lite Micro took for the model as given and, where it ran, for the optimised one; empty
            for other runtimes.
        refused: Why the target's own runtime does not run the model as given, in its words; None where it does, or was
            not asked.
        feeds: The file with the inputs that both ran on; None for random ones.
        at_stated_sizes: False where the user stated sizes of values inside, and those that ran were others.
        special_values: Those that were mixed into further inputs, on which both gave the same, in words: bit for bit
            but for what NaN are made of, or within what is permitted.
        special_wrong: What the optimised model makes of some of them, if that is wrong; None where it is right.
        stated: What must be said beside the verdict.
    """

    runtime: str
    runs: int
    outputs_equal: bool | None
    max_abs_error: float | None
    measured_peak_before_bytes: int | None
    measured_peak_after_bytes: int | None
    executed_order_matches: bool | None
    reason: str | None
    notes: tuple[str, ...] = ()
    predicted_peak_before_bytes: int | None = None
    predicted_peak_after_bytes: int | None = None
    relative_error: float | None = None
    own_error: float | None = None
    outputs_vary: bool | None = None
    measured_with: tuple[str, ...] = ()
    default_session: str | None = None
    default_peak_before_bytes: int | None = None
    default_peak_after_bytes: int | None = None
    default_relative_error: float | None = None
    default_apart: float | None = None
    other_sizes: tuple[OtherSize, ...] = ()
    arenas: tuple[MeasuredArena, ...] = ()
    refused: str | None = None
    feeds: str | None = None
    at_stated_sizes: bool = True
    special_values: tuple[str, ...] = ()
    special_wrong: str | None = None
    stated: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing that was measured speaks against what was predicted."""
        return missed_by(self, in_arena=len(self.arenas) > 1, at_stated_sizes=self.at_stated_sizes) <= CLOSE

    @property
    def wrong_elsewhere(self) -> OtherSize | None:
        """Return a size that the model as given leaves open and at which the optimized one is wrong."""
        return next((one for one in self.other_sizes if one.outcome == "wrong"), None)

    @property
    def time_ratio(self) -> float | None:
        """The time of an invocation of the optimised model to that of the one given; None if it was not measured."""
        before, after = (arena.seconds for arena in self.arenas) if len(self.arenas) > 1 else (None, None)
        return after / before if before and after else None

    @property
    def apart(self) -> str:
        """How outputs differ that do, in words."""
        return self.special_wrong or f"(by up to {self.max_abs_error})"

    def within(self, atol: float) -> bool | None:
        """Return whether no output differs by more than ``atol``; None where nothing could be run."""
        if self.outputs_equal is None:
            return None
        return self.outputs_equal or (self.max_abs_error is not None and self.max_abs_error <= atol)


def as_opened(found: Verification) -> Verification:
    """Return ``found`` for a file that is opened without the options that were verified: such a session counts."""
    if found.outputs_equal and found.default_apart:
        reason = f"outputs differ by up to {found.default_apart:.1e} of their largest magnitude"
        found = replace(
            found, outputs_equal=False, max_abs_error=None, relative_error=found.default_apart, reason=reason
        )
    return replace(
        found,
        measured_peak_before_bytes=found.default_peak_before_bytes,
        measured_peak_after_bytes=found.default_peak_after_bytes,
        predicted_peak_before_bytes=None,
        predicted_peak_after_bytes=None,
        default_relative_error=None,
        executed_order_matches=None,
        measured_with=("session = onnxruntime.InferenceSession(path)",),
    )
