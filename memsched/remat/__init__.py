"""Floor 4: computing values again rather than keeping them."""
