"""ONNX files: read, described, rewritten, written."""
