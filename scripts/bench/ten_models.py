"""Measure what ONNX Runtime's process takes for models that people run: files exchanged, options alone, and both.

For each model, in fresh processes: the file as given in a session without options; in such a session the file that
``memsched optimize`` writes, with its defaults and with ``--session default --allow reorder,inplace,tile``; the point
that ``memsched doctor`` prints first for the file as given and the latter, and its best for the file as given alone.
Time is the processor's, in turns with the first session. Without models: those of `scripts.networks` that people run,
with random weights.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memsched.base.errors import MemschedError
from memsched.commands.options import DoctorOptions
from memsched.features.doctor.doctor import diagnose
from memsched.formats.module import LoadOptions
from memsched.report.session_code import options_text
from memsched.report.values.doctor import DoctorRow
from memsched.runtimes.measure import middle
from memsched.runtimes.onnxruntime.session_memory import draw_feeds, measure_session
from memsched.runtimes.sessions import DEFAULT
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option
from scripts.bench.runner.onnx_files import LISTED, NAMED, STATED, model_file, shape_options, stated_shapes
from scripts.bench.runner.processes import optimized

__all__ = ["BENCH", "Point", "measure", "more_than_given", "tables"]

_SLOWEST: Final = 1.1
_NOISE: Final = 0.02
_TIMES: Final = 3
_MEGABYTE: Final = 1024 * 1024

_FILES: Final[Mapping[str, Sequence[str]]] = {
    "plain": (),
    "session": ("--session", "default", "--allow", "reorder,inplace,tile"),
}
"""Options of ``memsched optimize`` for the files that are exchanged."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a session took.

    Attributes:
        how: File and options, in words.
        process: Peak of the process in a steady run, bytes.
        requested: Of the arena at most, bytes; None where that is not shown.
        ratio: Of processor time to that of the file as given, without options.
    """

    how: str
    process: int
    requested: int | None
    ratio: float

    def cell(self, given: Point) -> str:
        """Return it beside the file as given, in a cell."""
        less = 100 * (self.process / given.process - 1)
        return f"{self.process / _MEGABYTE:.1f} ({less:+.0f} %), {self.ratio:.2f} x"


def measure(path: Path, options: LoadOptions, sessions: int | None, slowdown: str | None = None) -> dict[str, Point]:
    """Return the points of a model: "given", "plain", "session", "knobs", "doctor"; those that failed are missing.

    Args:
        sessions: For the doctor to open; None for as many as its limit of time permits.
        slowdown: ``--max-slowdown`` of the file with pieces; None for the default.

    Raises:
        MemschedError: The model as given cannot be run.
    """
    given: dict[str, Point] = {}
    with tempfile.TemporaryDirectory() as folder:
        feeds = Path(folder, "feeds.npz")
        draw_feeds(path.read_bytes(), path.absolute().parent, options, feeds, seed=0)
        written = {name: Path(folder, f"{name}.onnx") for name in _FILES}
        for name, told in _FILES.items():
            slower = ["--max-slowdown", slowdown] if slowdown and told else []
            made = optimized(path, [*told, *slower, *shape_options(options)], codes=(0, 4))
            written[name].write_bytes(made.model)
        shown = {name: _median(file, feeds, path) for name, file in {"given": path, **written}.items()}
        asked = DoctorOptions(input_shapes=options.input_shapes, dims=options.dims, effort=sessions)
        told_first = diagnose(str(path), str(written["session"]), asked).values
    rows = told_first.sessions
    given |= {name: point for name, point in shown.items() if point is not None}
    given["doctor"] = _point(rows[told_first.choices[0].row])
    alone = [row for row in rows if row.session.file == "given" and row.cpu_ratio <= _SLOWEST]
    given["knobs"] = min(map(_point, alone), key=lambda point: point.process, default=given["given"])
    return given


def _median(path: Path, feeds: Path, given: Path) -> Point | None:
    """Return what a session without options takes, the one of three that takes neither most nor least."""
    if path != given and path.read_bytes() == given.read_bytes():
        path = given
    shown = [measure_session(path, feeds, DEFAULT, (given, DEFAULT)) for _ in range(_TIMES)]
    ran = [one for one in shown if not isinstance(one, str)]
    if not ran:
        return None
    one = middle(ran)
    return Point("none", one.peak, one.requested, one.ratio or 1.0)


def _point(row: DoctorRow) -> Point:
    session = row.session
    how = options_text(session)
    return Point(f"{session.file}: {how}", session.process_bytes or 0, session.measured_bytes, row.cpu_ratio)


def more_than_given(points: Mapping[str, Point]) -> bool:
    """Whether the file written for any session needs more in one without options than the one given, beyond noise."""
    return "plain" in points and points["plain"].process > points["given"].process * (1 + _NOISE)


def tables(
    models: Sequence[str],
    options: LoadOptions,
    sessions: int | None,
    kept: Path | None,
    slowdown: str | None = None,
) -> Iterator[Part]:
    """Yield a row for each model, then what they come to.

    Args:
        kept: Folder in which what was measured is kept, and found again.
    """
    yield "Process in MB, beside the file as given without options, and time; options are none where none are named.\n"
    columns = ("given", "written", "written, --session", "options alone", "doctor's first")
    yield Heading("model", *(f">~{name}" for name in columns), "~which is", ">~requested, in that order")
    less: list[float] = []
    more: list[str] = []
    for model in models:
        try:
            points = _kept(model, options, sessions, kept, slowdown)
        except MemschedError as error:
            yield Verdict(f"{model}: {error}", wrong=True)
            continue
        given, first = points["given"], points["doctor"]
        cells = [points[name].cell(given) if name in points else "-" for name in ("plain", "session", "knobs")]
        asked = [points[name] for name in ("given", "plain", "session", "doctor") if name in points]
        peaks = " / ".join("-" if one.requested is None else f"{one.requested / _MEGABYTE:.2f}" for one in asked)
        yield Path(model).stem, f"{given.process / _MEGABYTE:.1f}", *cells, first.cell(given), first.how, peaks
        less.append(100 * (first.process / given.process - 1))
        more += [Path(model).stem] * more_than_given(points)
    if less:
        yield f"\nthe doctor's first: {sum(less) / len(less):+.1f} % on average"
    yield Verdict(f"written, and more in a session without options: {', '.join(more) or 'none'}", bool(more))


def _kept(
    model: str, options: LoadOptions, sessions: int | None, kept: Path | None, slowdown: str | None
) -> dict[str, Point]:
    file = None if kept is None else kept / f"{Path(model).stem}.json"
    if file is not None and file.exists():
        return {name: Point(**values) for name, values in json.loads(file.read_text(encoding="utf-8")).items()}
    with tempfile.TemporaryDirectory() as folder:
        points = measure(model_file(model, Path(folder)), options, sessions, slowdown)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: dataclasses.asdict(point) for name, point in points.items()}), "utf-8")
    return points


def _tables(values: Values) -> Iterator[Part]:
    models = values.models or LISTED
    return tables(models, stated_shapes(values), values.sessions, values.keep, values.max_slowdown)


BENCH = Benchmark(
    __doc__,
    _tables,
    (
        NAMED,
        *STATED,
        option("--sessions", type=int, metavar="N", help="for the doctor to open; default: what its time permits"),
        option("--max-slowdown", metavar="PCT", help="as optimize has it, for the file with pieces"),
        option("--keep", type=Path, metavar="FOLDER", help="where figures are kept, and taken from in another run"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
