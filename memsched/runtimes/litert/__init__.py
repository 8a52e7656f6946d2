"""LiteRT: its planner, its kernels' temporaries, its interpreter."""
