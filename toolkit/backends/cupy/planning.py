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
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock

from toolkit.backends.cupy import cudnn
from toolkit.backends.cupy.signatures import Signature
from toolkit.machine import available_cores

# Processes at once.
MOST = 32
# The seconds that a process has for its plan: what is not there then is made by who
# asked.
LIMIT = 40
_START = (
    "import sys; sys.path[:] = {path!r}; "
    "from toolkit.backends.cupy import planning; planning.work(); "
    # To unload libraries takes longer than it is worth.
    "import os; os._exit(0)"
)


def is_slow(signature: Signature) -> bool:
    """Whether planning compiles, as it does for all but convolutions."""
    return not signature.nodes[0].op.startswith("conv")


class Planner:
    """Makes plans from when they are known of to when they are needed.

    Args:
        properties: what the device says of itself.
        arch: its compute capability, such as 90.
    """

    def __init__(self, properties: str, arch: int) -> None:
        self.properties = properties
        self.arch = arch
        self._begun: dict[cudnn.Key, Future[bytes]] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        # Each waits for a process; there until all plans that are needed are asked for.
        self._threads: ThreadPoolExecutor | None = None
        self._turn = Lock()

    def begin(self, key: cudnn.Key) -> None:
        """Make a plan that `planned` will be asked for, if it helps."""
        cores = available_cores()
        # Where this is no interpreter's process there is nothing to start.
        if cores < 2 or not sys.executable or getattr(sys, "frozen", False):
            return
        with self._turn:
            if key not in self._begun:
                if self._threads is None:  # a process waits half of its time
                    self._threads = ThreadPoolExecutor(min(2 * cores, MOST))
                with suppress(RuntimeError):  # the system has no room for a thread
                    self._begun[key] = self._threads.submit(self._made, key)

    def planned(self, keys: Sequence[cudnn.Key]) -> dict[cudnn.Key, bytes]:
        """The plans of graphs as they are stored; without those that could not be made.

        One alone that was not begun is made by who asked.
        """
        if len(keys) > 1:
            for key in keys:
                self.begin(key)
        with self._turn:
            found = {k: self._begun.pop(k) for k in keys if k in self._begun}
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        try:
            plans = {key: self._result(each) for key, each in found.items()}
        except BaseException:
            self._end(threads)
            raise
        return {key: plan for key, plan in plans.items() if plan}

    def cancel(self) -> None:
        """Make nothing more of what was begun."""
        with self._turn:
            threads, self._threads = self._threads, None
            self._begun.clear()
        self._end(threads)

    def _end(self, threads: ThreadPoolExecutor | None) -> None:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            process.kill()

    @staticmethod
    def _result(begun: Future[bytes]) -> bytes:
        with suppress(CancelledError):  # as another program came to nothing
            return begun.result()
        return b""

    def _made(self, key: cudnn.Key) -> bytes:
        """What a process of its own answers; empty if it cannot."""
        command = [sys.executable, "-c", _START.format(path=sys.path)]
        asked = pickle.dumps((key, self.properties, self.arch))
        # Whatever it was, the system may have no room for one more: no plan is there.
        with suppress(Exception):
            process = subprocess.Popen(
                command,
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


def work() -> None:
    """Answer on standard output what standard input asks for."""
    # What libraries print must not get between.
    out, sys.stdout = os.dup(1), sys.stderr
    os.dup2(2, 1)
    with open(out, "wb") as pipe:
        pipe.write(answer(sys.stdin.buffer.read()))


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
