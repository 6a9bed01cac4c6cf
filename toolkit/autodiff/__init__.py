"""Gradients: the tape, rules of their own, directional derivatives, control flow."""
