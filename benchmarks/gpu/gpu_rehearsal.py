"""GPU in host memory, for rehearsals of a GPU session.

It executes all GPU work on the CPU, slowly, with tiny sizes. GPU-only features are not
rehearsed: library addresses, captured graphs, streams, time.
"""

import os
import tempfile
from pathlib import Path

# Set in the environment of a rehearsal and its steps.
VARIABLE = "GPU_REHEARSAL"
# Bytes of memory of the device.
MEMORY = 1 << 30


def is_on():
    """Return whether this process is part of a rehearsal."""
    return bool(os.environ.get(VARIABLE))


def install():
    """Replace "gpu:0" by host memory, if this is a rehearsal."""
    if not is_on():
        return
    # A local import, because `gpu_machine` needs the standard library only.
    import numpy as np

    from tests.backends.cupy.host import HostDevice
    from toolkit.backends import registry
    from toolkit.backends.cupy.backend import CupyBackend

    folder = Path(tempfile.mkdtemp(prefix="gpu_rehearsal_"))
    device = HostDevice(folder, {}, limit=MEMORY)
    registry.register_backend("cupy", lambda number=0: CupyBackend(device, np))


def size(real, tiny):
    """Return a size: the tiny one in a rehearsal."""
    return tiny if is_on() else real
