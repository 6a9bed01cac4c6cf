"""Tensors, Variables, traces and symbols: the operands of operations."""
