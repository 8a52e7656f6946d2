"""TensorFlow Lite Micro: its planner, its kernels, its arena, the plan in the file."""
