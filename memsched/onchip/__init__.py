"""Layer fusion in an accelerator's on-chip memory: groups, addresses, DRAM traffic and time.

Source: "Deep Fusion". `plan` is the pipeline.
"""

from memsched.onchip.model import OnChipGroup, OnChipPlan
from memsched.onchip.plan import plan

__all__ = ["OnChipGroup", "OnChipPlan", "plan"]
