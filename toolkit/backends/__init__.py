"""Where tensors are computed: kernels and memory, one folder per array library."""

from toolkit.backends.base import (
    Backend,
    describe_backends,
    get_backend,
    register_backend,
    workspace,
    workspace_bytes,
)

__all__ = [
    "Backend",
    "describe_backends",
    "get_backend",
    "register_backend",
    "workspace",
    "workspace_bytes",
]
