"""Plans of cuDNN that processes of their own make, each some of them.

Normalizations and attention are compiled when they are planned, for a second each, and
the frontend keeps Python's lock meanwhile: threads would wait for each other. Nothing
here needs a device, but what it says of itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from toolkit.backends.cupy import cudnn
from toolkit.machine import available_cores

# Processes at once; the seconds that one has to begin, and those for each plan: what is
# not there then is made by who asked.
MOST, BEGINNING, EACH = 16, 30, 10
_START = (
    "import sys; sys.path[:] = {path!r}; "
    "from toolkit.backends.cupy import planning; planning.work(); "
    # To unload libraries takes longer than it is worth.
    "import os; os._exit(0)"
)


def is_slow(key: cudnn.Key) -> bool:
    """Whether planning compiles, as it does for all but convolutions."""
    return not key[0].nodes[0].op.startswith("conv")


def planned(
    keys: Sequence[cudnn.Key], properties: str, arch: int
) -> dict[cudnn.Key, bytes]:
    """The plans of graphs as they are stored; without those that could not be made.

    Args:
        keys: of the graphs.
        properties: what the device says of itself.
        arch: its compute capability, such as 90.
    """
    count = min(len(keys), available_cores(), MOST)
    # Where this is no interpreter's process there is nothing to start.
    if count < 2 or not sys.executable or getattr(sys, "frozen", False):
        return {}
    groups = [list(keys[i::count]) for i in range(count)]
    command = [sys.executable, "-c", _START.format(path=sys.path)]
    found: dict[cudnn.Key, bytes] = {}
    begun: list[subprocess.Popen[bytes]] = []
    end = monotonic() + BEGINNING + EACH * len(groups[0])
    try:
        with suppress(OSError):  # the system may have no room for more
            for group in groups:
                begun.append(_begun(command, pickle.dumps((group, properties, arch))))
        for process, group in zip(begun, groups, strict=False):
            with suppress(Exception):  # whatever it was: plans are not there
                content, _ = process.communicate(timeout=max(0, end - monotonic()))
                made = pickle.loads(content)
                found |= {k: m for k, m in zip(group, made, strict=True) if m}
    finally:
        for process in begun:
            process.kill()
            process.wait()
    return found


def _begun(command: Sequence[str], asked: bytes) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    with suppress(OSError), process.stdin as pipe:
        pipe.write(asked)
    process.stdin = None  # it is closed
    return process


def work() -> None:
    """Answer on standard output what standard input asks for."""
    # What libraries print must not get between.
    out, sys.stdout = os.dup(1), sys.stderr
    os.dup2(2, 1)
    with open(out, "wb") as pipe:
        pipe.write(answer(sys.stdin.buffer.read()))


def answer(asked: bytes) -> bytes:
    """The plans that are asked for, empty where one could not be made.

    What fails is left to who asked: it says why when it is made there.
    """
    keys, properties, arch = pickle.loads(asked)
    made = cudnn.frontend().create_device_properties(properties)
    where = {"device_property": made, "sm_version": arch}
    found = []
    for signature, workspace in keys:
        content = b""
        with suppress(Exception):
            graph = cudnn.plan(signature, where, workspace)
            content = bytes(graph.serialize())
        found.append(content)
    return pickle.dumps(found)
