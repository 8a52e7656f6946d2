"""Tools around memsched: benchmarks, generators of networks, what a build uses."""
