"""Floor 2: a target's rules applied to a graph."""
