"""What the compiler made of a function: passes, kernels, memory, times."""

from toolkit.definitions.namespaces import on_first_use

_HOMES = {
    ".inspection": ("Inspection", "Kernel"),
    ".mixed": ("inspect_program",),
}

__all__ = ["Inspection", "Kernel", "inspect_program"]

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
