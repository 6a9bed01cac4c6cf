"""What the compiler made of a function: passes, kernels, memory, times."""

from toolkit.inspection.inspection import Inspection, Kernel
from toolkit.inspection.mixed import inspect_program

__all__ = ["Inspection", "Kernel", "inspect_program"]
