"""Kernels generated as LLVM IR and compiled for the processor that runs them.

`builder` writes instructions, with indices and pointers that know arithmetic; `kernel`
is the one writer of kernels: the table, loads and stores, masks, runs. `scalars` and
`math` say what primitives do to one element. `fused` makes kernels of loop nests,
`kernels` those of single primitives; `engine` compiles and keeps them, `program` binds
and runs them.
"""
