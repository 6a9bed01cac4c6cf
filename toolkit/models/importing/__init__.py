"""Import of models from other formats: ONNX."""
