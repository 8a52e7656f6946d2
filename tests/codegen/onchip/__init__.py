"""Plans of on-chip memory."""
