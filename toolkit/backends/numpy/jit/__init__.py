"""Kernels generated as LLVM IR and compiled for the processor that runs them."""
