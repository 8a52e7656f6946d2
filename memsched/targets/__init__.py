"""What a runtime or device does with memory, as data."""
