"""``memsched relay``: a model as several files that are executed one after the other in one block of memory."""
