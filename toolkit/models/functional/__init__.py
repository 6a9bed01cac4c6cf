"""Functional models, and the serialization of their graphs."""
