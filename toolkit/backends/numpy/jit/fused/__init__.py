"""Kernels of fused bodies: loop nests, passes over rows, and sums over tasks."""
