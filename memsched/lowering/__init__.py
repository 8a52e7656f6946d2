"""A target's rules applied to a graph: views, shared bytes, and workspaces."""
