"""LLVM through llvmlite, initialized once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

# Without this pass peeled kernels compile several times faster and run as fast.
FLAGS = ("-disable-lsr",)


@lru_cache(maxsize=1)
def binding() -> Any:
    """Return `llvmlite.binding`, initialized for the host."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    for flag in FLAGS:
        llvm.set_option("", flag)
    return llvm


@lru_cache(maxsize=1)
def binding_for_all() -> Any:
    """Return the binding with all targets of LLVM, without assembly parsers."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@lru_cache(maxsize=1)
def version() -> str:
    """Return the versions of llvmlite and LLVM."""
    import llvmlite

    return f"{llvmlite.__version__} {binding().llvm_version_info}"
