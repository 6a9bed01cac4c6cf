"""Fused bodies as kernels: the loops of a plan, its rows, and sums over tasks."""
