"""cuDNN plans that separate processes build in parallel with the caller.

cuDNN compiles normalizations and attention during planning, for 1 s each, and the
frontend holds the GIL. Threads would not run in parallel. This module needs no device,
only its properties.
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

# The maximum number of concurrent processes.
MAX_PROCESSES = 32
# The time limit of a process for its plan, in seconds; after it, the caller builds the
# plan.
TIME_LIMIT = 40


def is_slow(signature: Signature) -> bool:
    """Return whether planning compiles code, as for all graphs except convolutions."""
    return not signature.nodes[0].op.startswith("conv")


class Planner(Background[cudnn.Key, bytes]):
    """Pool that builds plans ahead of use.

    Args:
        properties: the device properties.
        arch: its compute capability, for example 90.
    """

    def __init__(self, properties: str, arch: int) -> None:
        # Each thread waits for a process, which waits half of its time.
        super().__init__(min(2 * available_cores(), MAX_PROCESSES))
        self.properties = properties
        self.arch = arch
        self._running: list[subprocess.Popen[bytes]] = []

    def precompile(self, key: cudnn.Key) -> None:
        """Start to build a plan for `wait_for`, if that saves time."""
        # A frozen application has no interpreter to start.
        is_interpreter = sys.executable and not getattr(sys, "frozen", False)
        if is_interpreter and available_cores() > 1:
            self.start(key)

    def wait_for(self, keys: Sequence[cudnn.Key]) -> dict[cudnn.Key, bytes]:
        """Return the serialized plans of graphs, without failed ones.

        The caller builds a single plan that was not started.
        """
        if len(keys) > 1:
            for key in keys:
                self.precompile(key)
        return {key: plan for key, plan in self.collect(keys).items() if plan}

    def _end(self, threads: ThreadPoolExecutor | None) -> None:
        super()._end(threads)
        for process in list(self._running):
            process.kill()

    def compute(self, key: cudnn.Key) -> bytes:
        """Return the response of a new process; empty on failure."""
        request = pickle.dumps((key, self.properties, self.arch))
        # On any error, for example no room for a process, no plan is available.
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
                answer, _ = process.communicate(request, TIME_LIMIT)
                return answer if process.returncode == 0 else b""
            finally:
                self._running.remove(process)
                process.kill()
                process.wait()
        return b""


def work(arguments: Sequence[str] = ()) -> None:
    """Write the plan for a request on standard input to standard output; exit."""
    # Output of libraries must not mix with the plan.
    out, sys.stdout = os.dup(1), sys.stderr
    os.dup2(2, 1)
    with open(out, "wb") as pipe:
        pipe.write(build_plan(sys.stdin.buffer.read()))
    os._exit(0)  # an orderly unload of the libraries is slow


def build_plan(request: bytes) -> bytes:
    """Return the requested plan; empty if planning failed.

    The caller then builds the plan again and gets the error.
    """
    (signature, workspace), properties, arch = pickle.loads(request)
    device_properties = cudnn.frontend().create_device_properties(properties)
    where = {"device_property": device_properties, "sm_version": arch}
    with suppress(Exception):
        return bytes(cudnn.plan(signature, where, workspace).serialize())
    return b""
