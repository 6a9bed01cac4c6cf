"""Passes for every backend; `toolkit.compiler.pipeline` has them in their order."""
