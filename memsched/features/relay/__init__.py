"""Models that run one after the other in one block of memory: where to cut, and where what they hand over lies."""
