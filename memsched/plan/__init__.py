"""Orders and addresses for every graph of a module."""
