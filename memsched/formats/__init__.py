"""Floor 5: ONNX and TFLite in and out."""
