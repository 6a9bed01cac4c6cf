"""Loops, the second and lower representation: a fused body as a nest over a space.

`iteration_space` says which indices the nodes of a body run over, `nest` joins axes to
the fewest loops, `plan` makes a body a plan of loops, and `phases` divides a row that
is too long for registers into passes. LLVM IR and CUDA are both written from plans.
"""
