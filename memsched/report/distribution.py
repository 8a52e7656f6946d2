"""What ``memsched distribute`` shows: the summary that people read."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

from memsched.base.shown import UNLIMITED
from memsched.base.units import counted, format_size
from memsched.report.text import console_table, print_line, shortened
from memsched.report.values.distribute import DistributionReport, InOrderSection, OrderSection, RunSection, TransferRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_distribution"]


def print_distribution(console: Console, report: DistributionReport, *, folder: str | None, verbose: bool) -> None:
    """Print a row per device, the predicted latency, the bytes sent, and whether the outputs are equal.

    Args:
        folder: Where plan and models were written, if anywhere.
        verbose: How each op is divided, and the memory that each process really took.
    """
    model, cluster = report.model, report.cluster
    devices = counted(len(report.devices), "device")
    title = f"{model.path}: {counted(model.ops, 'op')} on {devices} of cluster '{cluster.name}'"
    print_line(console, title, "bold")
    console.print(_table(report, console))
    for text, style in _findings(report):
        print_line(console, text, style)
    if verbose:
        for text in _details(report):
            print_line(console, text)
    for note in report.notes:
        print_line(console, f"note: {note}", "dim")
    if folder is not None:
        files = sum(device.models for device in report.devices)
        print_line(console, f"plan and {counted(files, 'model')}: {folder}", whole=True)


def _table(report: DistributionReport, console: Console) -> Any:
    """Return the table of devices; what was measured stands beside what was planned where there is room for both."""
    from rich.measure import Measurement

    table = _devices(report, console.width, measured=report.run is not None)
    if Measurement.get(console, console.options.update(max_width=UNLIMITED), table).maximum <= console.width:
        return table
    return _devices(report, console.width, measured=False)


def _devices(report: DistributionReport, width: int, *, measured: bool) -> Any:
    columns = ["memory", "of", "weights", *(["measured"] if measured else []), "sends", "receives"]
    table = console_table("device", *columns, left=(0,))
    sent, received = _traffic(report)
    for device in report.devices:
        used = None if device.measured is None else device.measured.weights_and_activations_bytes
        table.add_row(
            shortened(device.name, width - 50 if width > 80 else 16),
            format_size(device.memory_bytes),
            format_size(device.capacity_bytes),
            format_size(device.weights_bytes),
            *([_size(used)] if measured else []),
            format_size(sent[device.index]),
            format_size(received[device.index]),
        )
    return table


def _size(value: int | None) -> str:
    return "-" if value is None else format_size(value)


def _traffic(report: DistributionReport) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that each device's link sends and receives; in a broadcast they leave once."""
    once = report.cluster.mode == "broadcast"
    sent = dict.fromkeys(range(-1, len(report.devices)), 0)
    received = dict(sent)
    for transfer in _all_transfers(report):
        sent[transfer.source] += transfer.size_bytes * (1 if once else len(transfer.targets))
        for target in transfer.targets:
            received[target] += transfer.size_bytes
    return sent, received


def _all_transfers(report: DistributionReport) -> list[TransferRow]:
    return [*(one for step in report.steps for one in (*step.transfers, *step.ahead)), *report.results]


def _findings(report: DistributionReport) -> list[tuple[str, str | None]]:
    result, run, cluster = report.result, report.run, report.cluster
    latency, single = result.latency_seconds, result.single_device
    change = 100 * (latency / single.latency_seconds - 1) if single.latency_seconds else 0.0
    alone = f"{_milliseconds(single.latency_seconds)} on one device"
    if not single.fits:
        alone += f", which does not have the {format_size(single.memory_bytes)} for it"
    even = result.even_split
    split = f"{_milliseconds(even.latency_seconds)} by an even split"
    if not even.fits:
        split += ", which does not fit"
    lines: list[tuple[str, str | None]] = [
        (f"predicted: {_milliseconds(latency)}, {change:+.1f} % against {alone}; {split}", "green")
    ]
    if result.lower_bound_seconds:
        bound = result.lower_bound_seconds
        lines.append(
            (f"no plan of the kind searched takes less than {_milliseconds(bound)}{_above(latency, bound)}", None)
        )
    lines.append((_order(result.order), None))
    count = counted(len(_all_transfers(report)), "transfer")
    steps = counted(result.steps, "step")
    lines.append((f"{steps}, {count}: {format_size(result.transmitted_bytes)} sent ({cluster.mode})", None))
    if cluster.dropped:
        lines.append((f"without {', '.join(cluster.dropped)}", "yellow"))
    if run is not None:
        lines += _run_lines(run)
    return lines


def _order(order: OrderSection) -> str:
    """Say in which order the plan executes, and why."""
    given, found = order.given, order.found
    summed = ", summed over the ops" if order.metric == "sum" else ""
    if order.kept == "together":
        before = [one.latency_seconds for one in (given, found) if one is not None and one.latency_seconds is not None]
        why = f"{_milliseconds(min(before))} before" if before else "in no other a plan fits"
        return f"order of execution: improved together with the shares; {why}"
    if found is None:
        why = "none needs less" if order.least_peak_proven else "none was found that needs less"
        return f"order of execution: the file's; {why} for activations on one device than {_cost(given)}{summed}"
    least = f"{_cost(found)} of activations on one device instead of {_cost(given)}{summed}"
    if order.kept == "found":
        if given.latency_seconds is None:
            return f"order of execution: a better one, {least}; in the file's no plan fits"
        return f"order of execution: a better one, {least}; {_milliseconds(given.latency_seconds)} in the file's"
    if found.latency_seconds is None:
        return "order of execution: the file's; in the one that needs less on one device no plan fits"
    other = _milliseconds(found.latency_seconds)
    return f"order of execution: the file's; {other} in the one that needs less on one device"


def _cost(one: InOrderSection) -> str:
    return format_size(one.cost_bytes)


def _above(latency: float, bound: float) -> str:
    over = 100 * (latency / bound - 1)
    if latency <= bound or isclose(latency, bound):  # sums of floats in different orders
        return ": this one is the fastest"
    if over < 0.1:
        return "; this one less than 0.1 % more"
    return f"; this one {over:.1f} % more" if over < 100 else f"; this one {latency / bound:.1f} times that"


def _run_lines(run: RunSection) -> list[tuple[str, str | None]]:
    where = f"run in {run.runtime}, one process per device"
    if run.outputs_equal:
        verdict = f"{where}: outputs bit-equal to one session's"
    else:
        verdict = (
            f"{where}: outputs within {run.max_abs_error:.1e} of one session's "
            f"({run.relative_error:.1e} of the largest)"
        )
    counted_bytes = f"bytes at the sockets: {run.delivered_bytes:,} delivered, as planned"
    lines: list[tuple[str, str | None]] = [(verdict, "green"), (counted_bytes, None)]
    if run.throttled is not None:
        timed = run.throttled
        off = 100 * (timed.measured_seconds / timed.predicted_seconds - 1) if timed.predicted_seconds else 0.0
        slow = f", {timed.slower} times slower" if timed.slower > 1 else ""
        took = f"{_milliseconds(timed.measured_seconds)}, {off:+.1f} % against predicted"
        lines.append((f"measured at the cluster's rates: {took} (median of {timed.passes} passes{slow})", "green"))
    return lines


def _details(report: DistributionReport) -> list[str]:
    lines = [f"found by {report.result.method} in {report.seconds:.2f} s"]
    lines += [
        f"  {share.op} ({share.type}): {share.axis} {' '.join(map(str, share.bounds))}" for share in report.shares
    ]
    for device in report.devices:
        measured = device.measured
        if measured is not None:
            grown, used = measured.resident_growth_bytes, measured.activations_bytes
            lines.append(
                f"  process of {device.name}: activations {_size(used)}, weights "
                f"{format_size(device.weights_bytes)}, memory beyond its start {_size(grown)}"
            )
    return lines


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"
