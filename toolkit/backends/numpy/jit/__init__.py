"""Kernels generated as LLVM IR and compiled for the processor that runs them.

`builder` writes instructions, `scalars` and `math` what primitives do to one element,
`memory` loads and stores, `elementwise` whole kernels; `engine` compiles and keeps
them, and `kernels` calls them.
"""
