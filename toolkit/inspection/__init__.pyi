# Written by scripts/write_stubs; do not edit.
from toolkit.inspection.inspection import Inspection as Inspection, Kernel as Kernel
from toolkit.inspection.mixed import inspect_program as inspect_program

__all__ = ["Inspection", "Kernel", "inspect_program"]
