"""Gradients: the tape, custom rules, directional derivatives, control flow."""
