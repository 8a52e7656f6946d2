"""``memsched decoder``."""
