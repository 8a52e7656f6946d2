"""The graph's values, its structure, and the only definition of memory use."""
