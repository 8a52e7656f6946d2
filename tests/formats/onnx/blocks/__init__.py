"""Models whose dimensions stay open."""
