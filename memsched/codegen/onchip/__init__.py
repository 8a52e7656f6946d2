"""Layer fusion in an accelerator's on-chip memory: groups, addresses, DRAM traffic and time.

Source: "Deep Fusion". `plan` is the pipeline.
"""

from memsched.codegen.onchip.model import OnChipGroup, OnChipPlan
from memsched.codegen.onchip.plan import plan

__all__ = ["OnChipGroup", "OnChipPlan", "plan"]
