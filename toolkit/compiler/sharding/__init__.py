"""Spreading a graph over the ranks of a mesh: one pass, one mesh axis after the other.

`propagate` decides how each value is spread, following the operands that are; each
operation says by its rule of axes what may be cut (`Primitive.axes`). `partition` then
writes the graph of one rank: local shapes, and collectives where values have to be put
together.
"""
