"""Floor 1: what a runtime or device does with memory, as data."""
