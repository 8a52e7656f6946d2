"""The steps to a budget that one file misses: a slower file, several files in one arena, C without an interpreter."""
