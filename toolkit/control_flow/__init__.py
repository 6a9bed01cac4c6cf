"""Loops and branches as operations that hold sub-graphs."""
