"""Figures of the memory scheduling literature that the tables stand beside.

From "Memory-aware Scheduling for Complex Wired Networks with Iterative Graph Optimization", tables II to VI, in KB of
1024 bytes and in seconds as printed there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["ABLATION", "NETWORKS", "Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """One network of tables II and III.

    Attributes:
        baseline: Peak of the reverse post-order.
        best: Peak of that paper's own schedule.
        seconds: Of that paper's own scheduling.
        target: Seconds that scheduling may take here: a tenth of ``seconds`` where that is above 5 s.
        reproduced: Whether the network as rebuilt here has the published baseline. The published AmoebaNet-A could
            not be identified.
    """

    baseline: int
    best: int
    seconds: float
    target: float
    reproduced: bool = True

    @property
    def reduction(self) -> float:
        """The published saving against the reverse post-order, as a share."""
        return 1 - self.best / self.baseline


NETWORKS: Final[Mapping[str, Published]] = MappingProxyType(
    {
        "nasnet_a": Published(4405, 3943, 4.62, 0.5),
        "amoebanet_a": Published(10510, 7732, 0.11, 0.5, reproduced=False),
        "darts": Published(1764, 1764, 0.09, 0.2),
        "randwire1": Published(5494, 4538, 23, 2.3),
        "randwire2": Published(6927, 6210, 17.09, 1.7),
        "randwire3": Published(5255, 4777, 1.22, 0.5),
        "hrnet_w18_small_v1": Published(7936, 6368, 0.96, 0.5),
        "hrnet_w18_small_v2": Published(7936, 6432, 5.01, 0.5),
        "hrnet_w32": Published(7936, 7296, 3.20, 0.5),
    }
)

ABLATION: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "nasnet_a": ("3600+ s", "2903 V, 213 s", "402 V, 4.84 s", "2837 V, 210 s", "590 V, 1.47 s"),
        "randwire1": ("3600+ s", "21120 V, 3600+ s", "2292 V, 16 s", "9527 V, 3600+ s", "1809 V, 1.75 s"),
        "hrnet_w18_small_v1": ("3600+ s", "2511 V, 10.7 s", "310 V, 2.7 s", "758 V, 3.9 s", "277 V, 0.96 s"),
    }
)
"""Table IV: origin, partition, partition and fusion, partition and pruning, all; variables and seconds."""
