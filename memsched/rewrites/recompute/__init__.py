"""Rematerialization: values are computed again instead of kept."""
