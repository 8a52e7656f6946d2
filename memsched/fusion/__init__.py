"""Floor 2: simplifications of a graph that keep the optimum of its schedule."""
