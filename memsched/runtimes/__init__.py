"""Runtimes: what each executes and requires, what a file must hold for it, and runs that verify and measure files."""
