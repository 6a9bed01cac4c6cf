"""A GPU made of host memory, on which a session on a GPU is rehearsed.

It computes what a GPU would be asked, slowly: everything is tiny. What only a GPU has
stays unrehearsed: libraries by their addresses, captured graphs, streams, time.
"""

import os
import tempfile
from pathlib import Path

# Set in the environment of a rehearsal, and so in that of its steps.
VARIABLE = "GPU_REHEARSAL"
# Bytes of memory of the device.
MEMORY = 1 << 30


def is_on():
    """Whether this process is one of a rehearsal."""
    return bool(os.environ.get(VARIABLE))


def install():
    """Let "gpu:0" be host memory, if this is a rehearsal."""
    if not is_on():
        return
    # Here, because what looks at a machine needs the standard library alone.
    import numpy as np

    from tests.backends.cupy.host import HostDevice
    from toolkit.backends import registry
    from toolkit.backends.cupy.backend import CupyBackend

    folder = Path(tempfile.mkdtemp(prefix="gpu_rehearsal_"))
    device = HostDevice(folder, {}, limit=MEMORY)
    registry.register_backend("cupy", lambda number=0: CupyBackend(device, np))


def size(real, tiny):
    """How large something is: in a rehearsal, tiny."""
    return tiny if is_on() else real
