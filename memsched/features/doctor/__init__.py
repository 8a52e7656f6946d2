"""`memsched doctor`: what a process takes and which sessions take less."""
