"""ONNX reader with a built-in schema and checks before use."""
