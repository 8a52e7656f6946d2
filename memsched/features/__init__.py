"""Whole features with a command of their own, each in one folder: its search, its files and its report."""
