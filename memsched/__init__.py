"""memsched: order, place and prove the activation memory of neural networks."""

__version__ = "0.1.0"
