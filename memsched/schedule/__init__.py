"""Floor 3: execution orders."""
