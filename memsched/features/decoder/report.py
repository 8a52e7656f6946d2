"""What ``memsched decoder`` reports and writes: the model, and the report beside it."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from memsched import __version__
from memsched.commands.optimize.report import model_section
from memsched.commands.results import Report
from memsched.features.decoder.decoder import FURTHER, DecoderModel, DecoderPhase
from memsched.formats.capabilities import WeightFiles
from memsched.formats.known import capability
from memsched.formats.staging import staged_files
from memsched.report.decoder_code import python_lines
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.decoder import (
    CacheRow,
    DecoderBudget,
    DecoderReport,
    DecoderVerification,
    PhaseRow,
    TextRow,
)

__all__ = ["decoder_report", "save_decoder"]


def decoder_report(model: DecoderModel, output: str) -> Report[DecoderReport]:
    """Return the report.

    Args:
        output: Where the model is written.
    """
    decoder, options = model.decoder, model.options
    return Report(
        DecoderReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="decoder",
            model=model_section(model.source),
            output=output,
            output_sha256=hashlib.sha256(model.data).hexdigest(),
            caches=tuple(
                CacheRow(
                    past=one.past,
                    present=one.present,
                    bytes_per_token=one.width * math.prod(size or 1 for size in one.shape),
                )
                for one in decoder.caches
            ),
            capacity=options.tokens,
            chunk=options.chunk,
            past_length=decoder.past_length,
            given_opening_bytes=max(one.given.earlier for one in model.prompts),
            opening_bytes=max(one.written.earlier for one in model.prompts),
            phases=(
                *(_row("prompt", one) for one in model.prompts),
                *(_row("token", one) for one in model.tokens),
            ),
            verification=DecoderVerification(
                runtime=model.runtime,
                further_tokens=3,
                texts=tuple(TextRow(tokens=one.tokens, equal=one.equal, error=one.error or 0.0) for one in model.texts),
                special_values=model.special_values,
            ),
            budget=_budget(model),
            code=python_lines(output, decoder, options.tokens, 1 if decoder.single else options.chunk),
            notes=model.source.notes,
            seed=options.seed,
            seconds=round(model.seconds, 3),
        )
    )


def save_decoder(model: DecoderModel, report: Report[DecoderReport], report_path: str | None) -> None:
    """Write the model and the report, both or none.

    Raises:
        OutputError: One of them cannot be written.
    """
    output = report.values.output
    with staged_files() as files:
        files.add(output, model.data)
        files.take(capability(model.source, WeightFiles).copy_external_files(model.source, Path(output).parent))
        if report_path is not None:
            files.add(report_path, report.to_json().encode())
        files.commit()


def _row(phase: str, one: DecoderPhase) -> PhaseRow:
    count = 1 if phase == "prompt" else FURTHER
    times = (None, None) if one.seconds is None else tuple(round(seconds / count, 6) for seconds in one.seconds)
    return PhaseRow(
        phase="prompt" if phase == "prompt" else "token",
        tokens=one.tokens,
        given_process_bytes=one.given.peak,
        process_bytes=one.written.peak,
        given_seconds=times[0],
        seconds=times[1],
        settled=one.given.settled and one.written.settled,
    )


def _budget(model: DecoderModel) -> DecoderBudget | None:
    if model.budget is None:
        return None
    required = model.required(given=False)
    return DecoderBudget(
        budget_bytes=model.budget,
        required_bytes=required,
        met=required <= model.budget,
        withheld=model.withheld,
        largest_given_tokens=model.largest(given=True),
        largest_tokens=model.largest(given=False),
    )
