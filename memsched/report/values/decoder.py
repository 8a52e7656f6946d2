"""The report of ``memsched decoder``."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256
from memsched.report.values.shared import ModelSection

__all__ = ["CacheRow", "DecoderBudget", "DecoderReport", "DecoderVerification", "PhaseRow", "TextRow"]


class CacheRow(Section, frozen=True, kw_only=True):
    """Keys or values of a layer.

    Attributes:
        past: The input: a buffer.
        present: The output: the same buffer.
        bytes_per_token: What it grows by.
    """

    past: str
    present: str
    bytes_per_token: Count


class PhaseRow(Section, frozen=True, kw_only=True):
    """What both files took, each in a process of its own, in a session without options.

    Attributes:
        phase: "prompt": all of it at once as given, in chunks in place; "token": one behind so many.
        tokens: Of the prompt, or before the token.
        given_process_bytes: At most while it ran, above what the process had before the session was opened: the model
            as given. Caches are in it.
        process_bytes: The same in place.
        given_seconds: Of the prompt, or of a token; null where it was not timed.
        seconds: The same in place.
        settled: Whether both processes stopped growing; otherwise time ended their runs.
    """

    phase: Literal["prompt", "token"]
    tokens: Count
    given_process_bytes: Count
    process_bytes: Count
    given_seconds: Amount | None
    seconds: Amount | None
    settled: bool = True


class TextRow(Section, frozen=True, kw_only=True):
    """A text on which outputs were compared.

    Attributes:
        tokens: Of its prompt.
        equal: Bit by bit, and the caches behind it.
        error: The largest difference, relative to the largest value.
    """

    tokens: Positive
    equal: bool
    error: float


class DecoderVerification(Section, frozen=True, kw_only=True):
    """What running both showed.

    Attributes:
        further_tokens: Computed behind each prompt, one at a time.
        special_values: Values that were among those of caches and inputs, on which outputs are as near as on others;
            empty if none can be.
    """

    runtime: str
    further_tokens: Count
    texts: tuple[TextRow, ...]
    special_values: tuple[str, ...] = ()


class DecoderBudget(Section, frozen=True, kw_only=True):
    """What fits.

    Attributes:
        required_bytes: A text of the length that was asked for, in place: the session's opening, prompt and tokens.
        largest_given_tokens: The longest text that fits with the model as given, by what was measured; null where
            none does.
        largest_tokens: The same in place.
    """

    budget_bytes: Count
    required_bytes: Count
    met: bool
    withheld: bool = False
    largest_given_tokens: Count | None
    largest_tokens: Count | None


class DecoderReport(Section, frozen=True, kw_only=True):
    """What memsched decoder found.

    Sizes are bytes, times seconds.

    Attributes:
        capacity: Tokens of the buffers that were measured; the file takes buffers of any length.
        chunk: Tokens of a prompt that are computed at a time.
        past_length: The input that says how many tokens the buffers hold; null where the model knows it otherwise.
        opening_bytes: Of the process at most while the session was opened, above what it had before: the model in
            place.
        given_opening_bytes: The same as given.
        phases: Rising; the longest text last.
        code: Lines of Python that run the model in place.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["decoder"]
    model: ModelSection
    output: str
    output_sha256: Sha256
    caches: tuple[CacheRow, ...]
    capacity: Positive
    chunk: Positive
    past_length: str | None
    given_opening_bytes: Count
    opening_bytes: Count
    phases: tuple[PhaseRow, ...]
    verification: DecoderVerification
    budget: DecoderBudget | None
    code: tuple[str, ...]
    notes: tuple[str, ...]
    seed: int
    seconds: Amount
