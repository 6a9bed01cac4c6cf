"""Sharding of a graph over the ranks of a mesh: one pass for each mesh axis.

`propagate` selects the sharding of each value from its sharded operands. The axis rule
of each operation defines the axes that may be split (`Primitive.axes`). `partition`
then builds the graph of one rank: local shapes, and collectives where values must be
combined.
"""
