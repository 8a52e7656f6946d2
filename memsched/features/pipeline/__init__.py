"""Stages of a pipeline of accelerators: exact, even and learned schedules, and what a pipeline does with them."""
