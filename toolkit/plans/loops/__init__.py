"""Loop nests: the lower representation of a fused body, between graph and code.

`iteration_space` finds the iteration space of the nodes of a body. `nest` collapses
loops. `plan` describes a body as a loop nest. `phases` divides a row that does not fit
in registers into passes. The generators of LLVM IR and of CUDA both read plans.
"""
