"""Backends: kernels, memory and code, with one folder per array library."""

from toolkit.backends.base import Backend
from toolkit.backends.generator import CodeGenerator
from toolkit.backends.kernels import KernelTable, workspace, workspace_bytes
from toolkit.backends.memory import Memory
from toolkit.backends.registry import (
    describe_backends,
    get_backend,
    register_backend,
)

__all__ = [
    "Backend",
    "CodeGenerator",
    "KernelTable",
    "Memory",
    "describe_backends",
    "get_backend",
    "register_backend",
    "workspace",
    "workspace_bytes",
]
