"""ONNX Runtime: its order, its reuse, its sessions, and what to write so that they hold."""
