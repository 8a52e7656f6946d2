"""The compiled core: inner loops in C++ behind a C ABI, each with a Python module that does the same."""
