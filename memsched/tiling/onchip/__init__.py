"""Layer fusion in an accelerator's on-chip memory: groups, addresses, DRAM traffic and time.

Source: "Layer fusion and on-chip reuse". `plan` is the pipeline, `section` what a report says of it.
"""

from memsched.tiling.onchip.model import OnChipGroup, OnChipPlan
from memsched.tiling.onchip.plan import plan, section

__all__ = ["OnChipGroup", "OnChipPlan", "plan", "section"]
