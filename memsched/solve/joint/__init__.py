"""Orders and addresses together, if the arena is larger than the peak."""
