"""Restriction of MPI's listening sockets to this machine.

Open MPI and its launcher listen on all interfaces, even if all ranks are on one machine
and the options name the loopback interface. A stranger that connects and sends one byte
at a time blocks them. On Linux, a filter on such a socket drops packets from other
machines, so that they cannot connect.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

# Networks of the loopback interface, for Open MPI's options.
LOOPBACK_NETWORK = "127.0.0.1/8"
_LISTEN_STATE = "0A"  # the state LISTEN in /proc/net/tcp
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER of asm-generic/socket.h
_PIDFD_GETFD = 438  # the system call number on all processors
_HEADER = 0xFFF00000  # SKF_NET_OFF: offsets relative to the IP header
_ACCEPTED_SIZE = 0x40000  # accepts this number of bytes of a packet
# Opcodes of classic BPF (linux/filter.h).
_LOAD, _LOAD_BYTE, _SHIFT, _AND, _EQUAL, _RETURN = 0x20, 0x30, 0x74, 0x54, 0x15, 0x06
# (opcode, jump if true, jump if false, operand). The filter accepts packets from
# 127.0.0.0/8 or ::1.
_Instruction: TypeAlias = tuple[int, int, int, int]
_REJECT_ALL: tuple[_Instruction, ...] = ((_RETURN, 0, 0, 0),)
_ACCEPT_LOCAL: tuple[_Instruction, ...] = (
    (_LOAD_BYTE, 0, 0, _HEADER),
    (_SHIFT, 0, 0, 4),
    (_EQUAL, 0, 3, 4),  # the IP version
    (_LOAD, 0, 0, _HEADER + 12),
    (_AND, 0, 0, 0xFF000000),
    (_EQUAL, 8, 9, 0x7F000000),
    (_LOAD, 0, 0, _HEADER + 8),
    (_EQUAL, 0, 7, 0),
    (_LOAD, 0, 0, _HEADER + 12),
    (_EQUAL, 0, 5, 0),
    (_LOAD, 0, 0, _HEADER + 16),
    (_EQUAL, 0, 3, 0),
    (_LOAD, 0, 0, _HEADER + 20),
    (_EQUAL, 0, 1, 1),
    (_RETURN, 0, 0, _ACCEPTED_SIZE),
    (_RETURN, 0, 0, 0),
)


@contextmanager
def restrict_new_listeners() -> Iterator[None]:
    """Restrict sockets that start to listen in this context."""
    old_inodes: set[str] = set()
    with suppress(OSError):
        old_inodes = {inode for inode, _ in _find_listeners(os.getpid())}
    yield
    restrict_listeners(os.getpid(), old_inodes)


def restrict_listeners(
    process: int, handled_inodes: set[str], reject_all: bool = False
) -> int:
    """Restrict TCP sockets that listen on all interfaces to this machine.

    Args:
        process: the PID of this process or of a child.
        handled_inodes: inodes of sockets to leave unchanged. New ones are added.
        reject_all: whether the sockets reject all clients, including this machine.

    Returns:
        The number of newly restricted sockets: 0 on systems other than Linux, and if
            the system forbids it.
    """
    if sys.platform != "linux":
        return 0
    instructions = _REJECT_ALL if reject_all else _ACCEPT_LOCAL
    count = 0
    with suppress(OSError):
        for inode, fd in _find_listeners(process):
            if inode not in handled_inodes:
                handled_inodes.add(inode)
                count += _restrict_socket(process, fd, instructions)
    return count


def _find_listeners(process: int) -> Iterator[tuple[str, int]]:
    """Yield (inode, descriptor) of each socket that listens on all interfaces."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        table = Path(f"/proc/{process}/net/{name}")
        for line in table.read_text("ascii").splitlines()[1:] if table.exists() else ():
            words = line.split()
            address = words[1].partition(":")[0]
            if words[3] == _LISTEN_STATE and not address.strip("0"):
                inodes.add(f"socket:[{words[9]}]")
    if inodes:
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(entry)
                if target in inodes:
                    yield target, int(entry.name)


def _restrict_socket(
    process: int, fd: int, instructions: tuple[_Instruction, ...]
) -> bool:
    """Attach the filter to a socket of a process; return whether this is permitted."""
    local_fd = (
        os.dup(fd) if process == os.getpid() else _duplicate_descriptor(process, fd)
    )
    if local_fd < 0:
        return False
    with socket.socket(fileno=local_fd) as listener:
        return _attach_filter(listener, instructions)


def _attach_filter(
    listener: socket.socket, instructions: tuple[_Instruction, ...]
) -> bool:
    content = b"".join(
        struct.pack("HBBI", *instruction) for instruction in instructions
    )
    memory = ctypes.create_string_buffer(content)
    program = struct.pack("@HP", len(instructions), ctypes.addressof(memory))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    except OSError:
        return False
    return True


def _duplicate_descriptor(process: int, fd: int) -> int:
    """Return a local descriptor for the same socket; -1 if not permitted."""
    try:
        handle = os.pidfd_open(process)
    except OSError:
        return -1
    try:
        return int(ctypes.CDLL(None).syscall(_PIDFD_GETFD, handle, fd, 0))
    finally:
        os.close(handle)
