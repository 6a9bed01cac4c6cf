"""Kernels of single primitives, one file or folder for each family."""
