"""Fusion of nodes, and recomputation of values instead of their storage."""
