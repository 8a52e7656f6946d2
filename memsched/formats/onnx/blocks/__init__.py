"""Models whose dimensions stay open: their sizes as expressions, and loops over blocks of an open dimension."""
