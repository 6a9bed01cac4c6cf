"""Atomic file replacement."""
