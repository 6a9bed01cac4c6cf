"""LLVM, by llvmlite, made ready once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

# Peeled kernels compile several times faster without it, and run no slower.
FLAGS = ("-disable-lsr",)


@lru_cache(maxsize=1)
def binding() -> Any:
    """`llvmlite.binding`, ready to write machine code for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    for flag in FLAGS:
        llvm.set_option("", flag)
    return llvm


@lru_cache(maxsize=1)
def binding_for_all() -> Any:
    """The same for every processor that LLVM knows. It parses no assembly for them."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@lru_cache(maxsize=1)
def version() -> str:
    """The versions of llvmlite and LLVM."""
    import llvmlite

    return f"{llvmlite.__version__} {binding().llvm_version_info}"
