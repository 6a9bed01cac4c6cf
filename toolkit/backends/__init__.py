"""Backends: kernels and memory, with one folder per array library."""

from toolkit.backends.base import (
    Backend,
    workspace,
    workspace_bytes,
)
from toolkit.backends.registry import (
    describe_backends,
    get_backend,
    register_backend,
)

__all__ = [
    "Backend",
    "describe_backends",
    "get_backend",
    "register_backend",
    "workspace",
    "workspace_bytes",
]
