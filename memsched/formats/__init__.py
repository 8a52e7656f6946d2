"""File formats: ONNX and TFLite, read, rewritten, and written; buffers as CSV; files written whole or not at all."""
