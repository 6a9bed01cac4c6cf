"""Callbacks: hooks around the steps of `fit`, `evaluate` and `predict`."""
