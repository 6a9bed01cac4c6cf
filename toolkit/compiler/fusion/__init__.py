"""Fusion: which nodes become one, and what is computed again instead of stored."""
