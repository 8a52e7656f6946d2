"""From a missed budget on: several files in one arena, C without an interpreter, and files that take more time."""
