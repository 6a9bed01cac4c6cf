"""Fused bodies as data, for every generator of code: plans, passes over rows, loops."""
