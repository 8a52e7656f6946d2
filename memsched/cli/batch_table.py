"""What ``memsched batch`` shows while it runs: a live table on a terminal, one line per model anywhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memsched.base.units import format_size
from memsched.cli.terminal import start_live
from memsched.report.text import print_line, shortened
from memsched.report.verdict import Change, change_text

if TYPE_CHECKING:
    from rich.console import Console

    from memsched.commands.batch.inputs import BatchModel
    from memsched.commands.batch.process import JobProgress
    from memsched.commands.batch.run import Event
    from memsched.report.batch import Row

__all__ = ["BatchDisplay", "row_text"]

_LEAST_ROWS = 3
_ROOM = 6
"""Lines of the terminal that are left free."""

_STYLES = {"done": "green", "budget_missed": "yellow", "failed": "red", "not_run": "dim"}


def row_text(row: Row) -> str:
    """Return a line on what became of a model, without its name."""
    if row.saved is None:
        return f"failed: {row.error}" if row.error else "not run"
    figures = row.saved.figures
    before, after = figures.file_required_bytes, figures.required_bytes
    peak, bound = figures.peak_bytes, figures.lower_bound_bytes
    proof = "optimal" if figures.status == "optimal" else f"gap {100 * (peak - bound) / max(peak, 1):.1f} %"
    text = f"{change_text(Change('', before, after, measured=False, process=True))}, {proof}"
    if figures.budget_met is False:
        text = f"budget missed: {format_size(figures.required_bytes)} required; {text}"
    return text


class BatchDisplay:
    """Shows the models that run, those that ended last, and how many are left."""

    def __init__(self, console: Console, models: Sequence[BatchModel]) -> None:
        self._console = console
        self._models = models
        self._lock = threading.Lock()
        self._running: dict[int, tuple[float, JobProgress | None]] = {}
        self._ended: list[Row] = []
        self._started = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> BatchDisplay:
        if self._console.is_terminal and not self._console.quiet:
            self._live = start_live(self._console, self._table)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, event: Event) -> None:
        """Take note of what happened; called from several threads."""
        with self._lock:
            if event.kind == "begins":
                self._running[event.index] = (time.monotonic(), None)
            elif event.kind == "news" and event.index in self._running:
                self._running[event.index] = (self._running[event.index][0], event.news)
            elif event.kind in {"again", "ends"}:
                self._running.pop(event.index, None)
            if event.row is not None:
                self._ended.append(event.row)
        if self._live is None:
            self._print(event)

    def _print(self, event: Event) -> None:
        path = self._models[event.index].path
        if event.kind == "again":
            print_line(self._console, f"{path}: its process died; it is tried again at the end", "yellow")
        elif event.row is not None:
            style = _STYLES[event.row.status.value]
            print_line(self._console, f"[{len(self._ended)}/{len(self._models)}] {path}: {row_text(event.row)}", style)

    def _table(self) -> Any:
        """Return what is shown now: the newest rows that fit above those that run, then the counts."""
        from rich.console import Group
        from rich.text import Text

        with self._lock:
            running, ended = dict(self._running), list(self._ended)
        room = max(_LEAST_ROWS, self._console.height - _ROOM)
        shown = sorted(running)[: max(_LEAST_ROWS, room // 2)]
        rows = ended[-max(_LEAST_ROWS, room - len(shown)) :]
        width = self._console.width - 1
        lines = [
            Text(self._fitted(row.path, row_text(row), width), _STYLES[row.status.value], no_wrap=True) for row in rows
        ]
        now = time.monotonic()
        for index in shown:
            began, news = running[index]
            lines.append(
                Text(self._fitted(self._models[index].path, _news_text(news, now - began), width), no_wrap=True)
            )
        more = f", {len(running) - len(shown)} more running" if len(running) > len(shown) else ""
        failed = sum(row.status.value == "failed" for row in ended)
        failures = f", {failed} failed" if failed else ""
        left = f"{len(ended)} of {len(self._models)} models{failures}{more}  {now - self._started:.0f} s"
        return Group(*lines, Text(left, "bold", no_wrap=True))

    @staticmethod
    def _fitted(path: str, text: str, width: int) -> str:
        """Return path and text in ``width`` columns: first the path is shortened, down to a quarter, then the text."""
        name = shortened(path, max(width - len(text) - 2, width // 4))
        return f"{name}  {shortened(text, width - len(name) - 2)}"


def _news_text(news: JobProgress | None, seconds: float) -> str:
    if news is None:
        return f"reading the model  {seconds:.0f} s"
    if not news.best_peak:
        return f"{news.stage}  {seconds:.0f} s"
    text = f"{news.stage}: {format_size(news.best_peak)}"
    if news.lower_bound is not None:
        gap = 100 * (news.best_peak - news.lower_bound) / news.best_peak
        text += f", bound {format_size(news.lower_bound)}, gap {gap:.1f} %"
    return f"{text}  {seconds:.0f} s"
