"""``memsched distribute``: a plan for several devices, and the models that they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from memsched.base.errors import UsageError
from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import check_limits, options_of, output_options, taken, unnamed_output
from memsched.commands.options import DistributeOptions

if TYPE_CHECKING:
    from memsched.commands.results import Report
    from memsched.report.values.distribute import DistributionReport

__all__ = ["command"]

_STANDARD = "-"


@click.command("distribute", cls=HelpCommand, short_help="Share a model out to the devices of a cluster.")
@click.argument("model")
@options_of(DistributeOptions, "cluster")
@click.option(
    "-o", "--output", metavar="DIR", help="Folder for plan and models; by default <stem>_distributed beside the model."
)
@options_of(
    DistributeOptions,
    "method",
    "metric",
    "drop",
    "home",
    "input_shapes",
    "dims",
    "time_limit",
    "effort",
    "memory_limit",
    "seed",
    "workers",
)
@click.option(
    "--run/--no-run",
    default=True,
    help="Run the plan here, one process per device, and compare, which is the default.",
)
@click.option(
    "--throttle",
    is_flag=True,
    help="Run the plan again with processes held to the cluster's rates, and measure how long it takes.",
)
@click.option(
    "--calibrate",
    metavar="FILE",
    help="Write the cluster's file with figures fitted to a run on the devices' shares of a core.",
)
@click.option("--force", is_flag=True, help="Write into a folder that holds other files, too.")
@output_options
def command(**options: Any) -> int:
    """Share the work on every operator of MODEL out to the devices of a cluster.

    DIR gets plan.json and, for each device and step between two synchronisations, the model that the device runs:
    <stem>_device_<d>_step_<s>, with the weights that it needs and no others. The plan is then run here, one
    process per device, and nothing is written if the outputs differ from the whole model's by more than 1e-5.

    Exit code 3: no plan fits the devices' memories; the message says how much would do.
    """
    from memsched.commands.calls import Hooks
    from memsched.features.distribute.distribute import calibrated_text, distribute, run_plan
    from memsched.features.distribute.report import check_folder, save_distributed
    from memsched.formats.staging import check_writable, staged_files

    check_limits(click.get_current_context())
    throttled: Literal["rates", "cores"] | None = "rates" if options["throttle"] else None
    if options["calibrate"] is not None:
        if throttled is not None:
            raise UsageError(
                "--throttle measures what --calibrate is to find", code="option-conflict", action="give one of them"
            )
        throttled = "cores"
    if throttled and not options["run"]:
        raise UsageError(
            "--no-run measures nothing", code="option-conflict", action="leave out --throttle and --calibrate"
        )
    if options["calibrate"] is not None:
        check_writable(options["calibrate"])
    display, folder = taken(Display, options), _folder(options["model"], options["output"])
    check_folder(folder, force=options["force"])
    with search_end(options["memory_limit"]) as end:
        found = distribute(options["model"], taken(DistributeOptions, options), Hooks(stop=end.stop))
        end.passed()
        if options["run"]:
            found = run_plan(found, throttled=throttled)
        report = save_distributed(found, folder, force=options["force"])
        if options["calibrate"] is not None:
            with staged_files() as files:
                files.add(options["calibrate"], calibrated_text(found).encode())
                files.commit()
    _print(report, display, folder)
    if not end.by_memory(display) and found.interrupted:
        if display.quiet:
            click.echo("memsched: interrupted: the best plan found so far was written", err=True)
        return ExitCode.INTERRUPTED
    return 0


def _folder(model: str, given: str | None) -> str:
    """Return where plan and models go.

    Raises:
        UsageError: Nothing gives the folder a name.
    """
    if given == _STANDARD:
        raise UsageError(
            "a plan and its models cannot go to standard output", code="needs-folder", action="name a folder with -o"
        )
    if given is not None:
        return given
    if model == _STANDARD:
        raise unnamed_output("folder")
    path = Path(model)
    return str(path.with_name(f"{path.stem}_distributed")) if path.name else "_distributed"


def _print(report: Report[DistributionReport], display: Display, folder: str) -> None:
    from memsched.cli.terminal import write_standard_output
    from memsched.report.distribution import print_distribution

    if display.as_json:
        write_standard_output(report.to_json().encode())
    console = display.console(stderr=display.as_json)
    print_distribution(console, report.values, folder=folder, verbose=display.detailed)
