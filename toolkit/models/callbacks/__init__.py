"""Callbacks: what happens around the steps of `fit`, `evaluate` and `predict`."""
