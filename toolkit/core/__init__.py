"""Tensors, Variables, traces and symbols: what operations work on."""
