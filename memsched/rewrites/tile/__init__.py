"""Layer tiling: which part of a layer's inputs a part of its output needs, through one op and through groups of ops."""
