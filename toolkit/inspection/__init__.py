"""Inspection of a compiled function: passes, kernels, memory, times."""

from toolkit.definitions.namespaces import lazy_namespace

_HOMES = {
    ".inspection": ("Inspection", "Kernel"),
    ".mixed": ("inspect_program",),
}

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_namespace(__name__, _HOMES)
