"""Passes for every backend; `toolkit.compiler.pipeline` defines their order."""
