"""Floor 0: the graph's values, its structure, the meaning of memory and the independent checker."""
