"""Plans of cuDNN that processes of their own make, beside what their caller does.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from toolkit.backends.cupy import cudnn
from toolkit.backends.cupy.background import Background
from toolkit.backends.cupy.signatures import Signature
from toolkit.machine import available_cores
from toolkit.processes import clean_environment, python_command

# Processes at once.
MOST = 32
# The seconds that a process has for its plan: what is not there then is made by who
# asked.
LIMIT = 40


def is_slow(signature: Signature) -> bool:
    """Whether planning compiles, as it does for all but convolutions."""
    return not signature.nodes[0].op.startswith("conv")


class Planner(Background[cudnn.Key, bytes]):
    """Makes plans from when they are known of to when they are needed.

    Args:
        properties: what the device says of itself.
        arch: its compute capability, such as 90.
    """

    def __init__(self, properties: str, arch: int) -> None:
        # Each thread waits for a process, which waits half of its time.
        super().__init__(min(2 * available_cores(), MOST))
        self.properties = properties
        self.arch = arch
        self._running: list[subprocess.Popen[bytes]] = []

    def foresee(self, key: cudnn.Key) -> None:
        """Make a plan that `planned` will be asked for, if it helps."""
        # Where this is no interpreter's process there is nothing to start.
        is_interpreter = sys.executable and not getattr(sys, "frozen", False)
        if is_interpreter and available_cores() > 1:
            self.begin(key)

    def planned(self, keys: Sequence[cudnn.Key]) -> dict[cudnn.Key, bytes]:
        """The plans of graphs as they are stored; without those that could not be made.

        One alone that was not begun is made by who asked.
        """
        if len(keys) > 1:
            for key in keys:
                self.foresee(key)
        return {key: plan for key, plan in self.taken(keys).items() if plan}

    def _end(self, threads: ThreadPoolExecutor | None) -> None:
        super()._end(threads)
        for process in list(self._running):
            process.kill()

    def make(self, key: cudnn.Key) -> bytes:
        """What a process of its own answers; empty if it cannot."""
        asked = pickle.dumps((key, self.properties, self.arch))
        # Whatever it was, the system may have no room for one more: no plan is there.
        with suppress(Exception):
            process = subprocess.Popen(
                python_command(f"{__name__}:work"),
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._running.append(process)
            try:
                answer, _ = process.communicate(asked, LIMIT)
                return answer if process.returncode == 0 else b""
            finally:
                self._running.remove(process)
                process.kill()
                process.wait()
        return b""


def work(arguments: Sequence[str] = ()) -> None:
    """Answer on standard output what standard input asks for, and end the process."""
    # What libraries print must not get between.
    out, sys.stdout = os.dup(1), sys.stderr
    os.dup2(2, 1)
    with open(out, "wb") as pipe:
        pipe.write(answer(sys.stdin.buffer.read()))
    os._exit(0)  # to unload libraries takes longer than it is worth


def answer(asked: bytes) -> bytes:
    """The plan that is asked for, empty if it could not be made.

    What fails is left to who asked: it says why when it is made there.
    """
    (signature, workspace), properties, arch = pickle.loads(asked)
    made = cudnn.frontend().create_device_properties(properties)
    where = {"device_property": made, "sm_version": arch}
    with suppress(Exception):
        return bytes(cudnn.plan(signature, where, workspace).serialize())
    return b""
