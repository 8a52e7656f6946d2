"""Addresses of buffers in one arena or in pools: fast planners, exact searches, and lower bounds."""
