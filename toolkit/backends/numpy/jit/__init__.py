"""Kernels generated as LLVM IR and compiled for the host processor.

`builder` emits instructions; its indices and pointers support arithmetic. `kernel`
emits all kernel code: the call table, loads and stores, masks, and loops. `scalars` and
`math` emit the scalar operations of primitives. `fused` generates kernels of loop
nests, and `kernels` generates kernels of single primitives. `engine` compiles and
caches them. `program` binds and runs them.
"""
