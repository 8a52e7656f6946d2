"""Floor 3: addresses."""
