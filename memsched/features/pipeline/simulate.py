"""What a pipeline of accelerators does with a stage schedule: seconds per stage, throughput and latency.

The machine is that of RESPECT, figure 2: accelerators, each with a link to one host, which hands every stage's
outputs on. It is a model, not a measurement; `Simulation.assumptions` says what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.stages import Network, Skips, StageFigures, StageSchedule, figures
from memsched.targets.model import PipelineRules

__all__ = ["Simulation", "StageTime", "cached", "simulate", "stage_time"]


class StageTime(FrozenValue, frozen=True):
    """One inference in one stage: bytes, and the seconds of each part of the work.

    Attributes:
        on_cache: Parameters that stay on the accelerator.
        off_cache: Parameters that are sent to it for every inference.
        receives: Values that come from outside the stage, inputs of the network included.
        sends: Values that others need from it, outputs of the network included.
        activations: Peak of activation memory; 0 where it was not stated.
        input: Seconds to receive values.
        parameters: Seconds to receive off-cache parameters.
        output: Seconds to send values.
    """

    on_cache: int
    off_cache: int
    receives: int
    sends: int
    activations: int
    input: float
    parameters: float
    compute: float
    output: float

    @property
    def total(self) -> float:
        """Seconds from the first byte that the stage receives to the last that it sends."""
        return self.input + self.parameters + self.compute + self.output


class Simulation(FrozenValue, frozen=True):
    """A whole pipeline.

    Attributes:
        throughput: Inferences per second when the pipeline is full: 1 / the slowest stage; 0 where no stage takes time.
        latency: Seconds of one inference through all stages.
        assumptions: What is assumed, a sentence each.
    """

    stages: tuple[StageTime, ...]
    throughput: float
    latency: float
    assumptions: tuple[str, ...]


def simulate(
    network: Network,
    schedule: StageSchedule,
    rules: PipelineRules,
    *,
    skips: Skips = "once",
    activations: Sequence[int] = (),
    computing: str = "",
) -> Simulation:
    """Return what ``schedule`` takes on the pipeline that ``rules`` describe.

    Args:
        skips: How values reach a stage that is not the next one.
        activations: Per stage its peak activation memory, bytes, shown beside the rest.
        computing: What is assumed of computing and parameters, where that is not what ``rules`` say.
    """
    parts = figures(network, schedule.stages, schedule.count, skips)
    peaks = activations or (0,) * len(parts)
    stages = tuple(_of_figures(network, part, rules, peak) for part, peak in zip(parts, peaks, strict=True))
    slowest = max((stage.total for stage in stages), default=0.0)
    return Simulation(
        stages=stages,
        throughput=1 / slowest if slowest else 0.0,
        latency=sum(stage.total for stage in stages),
        assumptions=_assumptions(rules, skips, computing),
    )


def cached(sizes: Iterable[int], capacity: int) -> tuple[int, int]:
    """Return the bytes of parameters that stay on the accelerator, and those that do not.

    As in the vendor's compiler, parameters are taken in the order in which layers run, first come, first served: each
    stays, as a whole, if it fits into what is left.
    """
    kept = left_out = 0
    for size in sizes:
        if kept + size <= capacity:
            kept += size
        else:
            left_out += size
    return kept, left_out


def stage_time(
    on_cache: int, off_cache: int, macs: int, receives: int, sends: int, rules: PipelineRules, activations: int = 0
) -> StageTime:
    """Return the seconds of a stage from what it holds, computes and moves."""
    link = rules.link_bytes_per_second
    return StageTime(
        on_cache=on_cache,
        off_cache=off_cache,
        receives=receives,
        sends=sends,
        activations=activations,
        input=receives / link,
        parameters=off_cache / link,
        compute=2 * macs / (rules.ops_per_second * rules.utilisation),
        output=sends / link,
    )


def _of_figures(network: Network, part: StageFigures, rules: PipelineRules, activations: int) -> StageTime:
    # Each constant once, where the first layer that reads it runs.
    used = dict.fromkeys(constant for layer in part.layers for constant in network.layers[layer].constants)
    on_cache, off_cache = cached([network.constants[constant] for constant in used], rules.parameter_cache_bytes)
    return stage_time(on_cache, off_cache, part.macs, part.receives, part.sends, rules, activations)


def _assumptions(rules: PipelineRules, skips: Skips, computing: str) -> tuple[str, ...]:
    link, rate = rules.link_bytes_per_second, rules.ops_per_second * rules.utilisation
    held = f"{rules.parameter_bits} bits a parameter" if rules.parameter_bits else "parameters as they are"
    overlap = (
        "A stage receives its values, then off-cache parameters, computes, then sends: nothing of that overlaps; "
        "different stages work on different inferences at the same time."
    )
    cache = (
        f"An accelerator keeps {rules.parameter_cache_bytes:,} bytes of parameters; in the order of its layers each "
        "constant that still fits stays, and all others are sent for every inference."
    )
    compute = (
        f"Computing takes two operations per multiply-accumulate at {rate / 1e9:,.0f} billion operations per second, "
        f"{100 * rules.utilisation:g} % of the nominal ones; other operations take no time."
    )
    once = "The host keeps values for stages further on, and sends them to each that reads them."
    through = "Values for stages further on pass through every stage between."
    return (
        f"Every accelerator has its own link to the host, of {link / 1e6:g} MB/s, and no transfer waits for another.",
        overlap,
        *([computing] if computing else [cache]),
        f"The accelerator holds {held}; sizes counted are those of the model as it was given.",
        *([] if computing else [compute]),
        once if skips == "once" else through,
        "The host itself takes no time.",
    )
