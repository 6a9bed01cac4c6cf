"""ONNX files: read by a schema of their own, and checked before anything is used."""
