"""Floor 4: orders and addresses together."""
