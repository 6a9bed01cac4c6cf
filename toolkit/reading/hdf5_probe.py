"""Child process that reads untrusted HDF5 files before the main process does.

It starts for the first file with a structure unknown to `hdf5_structure`, and also
serves later files. If HDF5's library hangs, crashes or uses too much memory, only the
child ends.
"""

from __future__ import annotations

import atexit
import io
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.processes import clean_environment, python_command
from toolkit.reading.budget import load_budget
from toolkit.reading.hdf5_library import import_h5py

_SECONDS = 1  # CPU seconds, plus one for each number of bytes
_BYTES = 1 << 26
_HEADER = struct.Struct("<?QQ")  # whether a path follows, size of path or file, budget
_OK = b"\x01"


class _Child:
    """Child process, one for each parent process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            python_command(f"{__name__}:serve"),
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.stop)

    def request(self, header: bytes, content: Any) -> bytes:
        """Return its answer, or nothing if it has ended."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(header)
            process.stdin.write(content)
            process.stdin.flush()
            return process.stdout.read(1)
        except OSError:
            return b""

    def stop(self) -> None:
        """Stop it, unless it belongs to the process that forked this one."""
        atexit.unregister(self.stop)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
_children: list[_Child] = []


def is_safe_to_read(source: Path | io.BytesIO) -> bool:
    """Return whether a child process can read all of the file in limited time."""
    if isinstance(source, Path):
        is_path, content = True, memoryview(os.fsencode(source.resolve()))
        budget = load_budget(source.stat().st_size)
    else:
        is_path, content = False, source.getbuffer()
        budget = load_budget(len(content))
    with _lock:
        if _children and _children[0].owner != os.getpid():
            _children.clear()  # after a fork: the child belongs to the parent process
        if not _children:
            _children.append(_Child())
        answer, child = b"", _children.pop()
        try:  # an interrupt can leave an incomplete request
            answer = child.request(_HEADER.pack(is_path, len(content), budget), content)
        finally:
            if answer in (b"\0", _OK):
                _children.append(child)
            else:
                child.stop()
    return answer == _OK


def serve(arguments: Sequence[str] = ()) -> None:
    """Answer for each file whether it can be read, in the child process.

    Args:
        arguments: has no effect.
    """
    h5py = import_h5py()

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while header := requests.read(_HEADER.size):
        is_path, size, budget = _HEADER.unpack(header)
        content = requests.read(size)
        source = os.fsdecode(content) if is_path else io.BytesIO(content)
        length = os.path.getsize(content) if is_path else size
        _set_limits(_SECONDS + length / _BYTES, budget + 2 * length)
        try:
            with h5py.File(source, "r") as file:
                _read_all(file, h5py)
            answer = _OK
        except Exception:
            answer = b"\0"
        _set_limits(0, 0)
        answers.write(answer)
        answers.flush()


def _set_limits(seconds: float, nbytes: int) -> None:
    """Set the time limit of this process, and its additional memory limit (0: none)."""
    if sys.platform == "win32":
        return
    import resource
    import signal

    signal.setitimer(signal.ITIMER_PROF, seconds)
    hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = hard_limit
    if nbytes and Path("/proc/self/statm").exists():
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
        limit = pages * resource.getpagesize() + nbytes + (1 << 28)
        if hard_limit != resource.RLIM_INFINITY:
            limit = min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))


def _read_all(file: Any, h5py: Any) -> None:
    """Read each name, attribute and value; plain arrays are harmless."""
    visited: set[int] = set()
    stack = [file]
    while stack:
        group = stack.pop()
        list(group.attrs.items())
        for key in group:
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                continue  # it is refused
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in visited:
                continue
            visited.add(address)
            if isinstance(item, h5py.Group):
                stack.append(item)
                continue
            list(item.attrs.items())
            if isinstance(item, h5py.Dataset) and not (
                item.is_virtual or item.external
            ):
                _read_values(item)


def _read_values(dataset: Any) -> None:
    if dataset.chunks:
        for selection in dataset.iter_chunks():
            dataset[selection]
    elif dataset.dtype.hasobject:
        dataset[()]
