"""`memsched decoder`: a model whose caches of keys and values are written in place."""
