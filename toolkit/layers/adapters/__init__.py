"""Weights stored in another form than they are multiplied: low-rank or quantized.

A layer with an adapter computes its product with `Weight.multiply`. The layers' modules
contain the computation without an adapter.
"""
