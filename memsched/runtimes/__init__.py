"""Floor 5: running a model to verify and measure it."""
