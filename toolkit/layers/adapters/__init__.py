"""Weights that are not kept as they are multiplied: of low rank, of 8 bits.

A layer with an adapter asks it for its product (`Weight.multiply`); the layers' own files
show what they compute without one.
"""
