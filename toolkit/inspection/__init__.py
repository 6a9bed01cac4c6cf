"""What the compiler made of a function: passes, kernels, memory, times."""

from toolkit.inspection.inspection import Inspection, Kernel

__all__ = ["Inspection", "Kernel"]
