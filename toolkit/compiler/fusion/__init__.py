"""Fusion: the nodes that become one node, and the values that are recomputed instead of
stored.
"""
