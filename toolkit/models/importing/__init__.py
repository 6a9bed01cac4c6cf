"""Models from files of other formats: ONNX."""
