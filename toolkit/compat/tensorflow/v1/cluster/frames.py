"""Messages between the tasks of a cluster: a JSON header, then arrays as raw bytes.

A message cannot run code. Declared sizes are checked against limits before any
allocation, and an invalid message raises a FrameError.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import CommunicationError

_PREFIX = struct.Struct("<4sI")
_MAGIC = b"TKT1"
LONGEST_HEADER = 64 << 20  # bytes
DEEPEST = 64  # nesting depth of lists and objects
MOST_ARRAYS = 100_000
LARGEST = 8 << 30  # bytes of all arrays of a message
MOST_AXES = 32


class FrameError(CommunicationError):
    """Error of an invalid message, or of one beyond the limits."""


class CutOffError(FrameError, EOFError):
    """Error of a connection that closes within a message."""


def send(
    connection: socket.socket, header: dict[str, Any], arrays: Sequence[Any] = ()
) -> None:
    """Send a message.

    Args:
        connection: the connection.
        header: JSON data.
        arrays: of numbers, in host memory.

    Raises:
        FrameError: if it exceeds the limits.
    """
    arrays = [np.asarray(x) for x in arrays]
    specs = [[dtypes.NAMES[x.dtype], list(x.shape)] for x in arrays]
    text = json.dumps({**header, "arrays": specs}, separators=(",", ":")).encode()
    nbytes = sum(x.nbytes for x in arrays)
    if len(text) > LONGEST_HEADER or nbytes > LARGEST or len(arrays) > MOST_ARRAYS:
        raise FrameError(
            f"message {header.get('type')!r}: a header of {len(text):,} bytes and "
            f"{len(arrays):,} arrays of {nbytes:,} bytes exceed the limits of "
            f"{LONGEST_HEADER:,}, {MOST_ARRAYS:,} and {LARGEST:,}"
        )
    connection.sendall(_PREFIX.pack(_MAGIC, len(text)) + text)
    for x in arrays:
        if x.nbytes:  # as bytes: bfloat16 does not support the buffer protocol
            flat = np.ascontiguousarray(x).reshape(-1)
            connection.sendall(flat.view(np.uint8).data)


def receive(
    connection: socket.socket, patience: float | None = None
) -> tuple[dict[str, Any], list[Any]]:
    """Receive the next message.

    Args:
        connection: the connection.
        patience: the timeout in seconds between the parts of a message.

    Raises:
        EOFError: the peer closed the connection between two messages.
        CutOffError: the peer closed it within a message.
        FrameError: the message is invalid.
    """
    first = connection.recv(1)
    if not first:
        raise EOFError("the connection was closed")
    if patience is not None:
        connection.settimeout(patience)
    try:
        prefix_tail = _receive_into(connection, bytearray(_PREFIX.size - 1))
        magic, length = _PREFIX.unpack(first + prefix_tail)
        if magic != _MAGIC or length > LONGEST_HEADER:
            raise FrameError(
                "the received data does not start with the header of a message"
            )
        header = _parse_header(_receive_bytes(connection, length))
        return header, _arrays(connection, header.pop("arrays", []))
    except EOFError:
        raise CutOffError("a message is truncated") from None
    except TimeoutError:
        raise FrameError("a message stopped before it was complete") from None
    finally:
        if patience is not None:
            connection.settimeout(None)


def _parse_header(text: bytearray) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"expected a header of JSON ({error})") from None
    if not isinstance(header, dict) or _depth(header) > DEEPEST:
        raise FrameError(f"expected an object as header, at most {DEEPEST} levels deep")
    return header


def _depth(value: Any) -> int:
    """Return the nesting depth of lists and objects, without recursion."""
    depth, level = 0, [value]
    while level := [x for x in level if isinstance(x, (list, dict))]:
        depth += 1
        level = [y for x in level for y in (x.values() if isinstance(x, dict) else x)]
    return depth


def _arrays(connection: socket.socket, specs: Any) -> list[Any]:
    if not isinstance(specs, list) or len(specs) > MOST_ARRAYS:
        raise FrameError(f"expected at most {MOST_ARRAYS:,} arrays in a list")
    checked = [validate_spec(spec) for spec in specs]
    nbytes = sum(math.prod(shape) * dtypes.itemsize(name) for name, shape in checked)
    if nbytes > LARGEST:
        raise FrameError(f"expected arrays of at most {LARGEST:,} bytes")
    arrays = []
    for name, shape in checked:
        try:  # memory grows with the received bytes
            array = np.empty(shape, dtypes.numpy_dtype(name))
        except (MemoryError, ValueError) as error:
            raise FrameError(f"no memory for {name}{list(shape)} ({error})") from None
        if array.nbytes:
            _receive_into(connection, array.reshape(-1).view(np.uint8))
        arrays.append(array)
    return arrays


def validate_spec(spec: Any) -> tuple[str, tuple[int, ...]]:
    """Return the validated dtype and shape from a list."""
    if isinstance(spec, list) and len(spec) == 2:
        name, shape = spec
        if name in dtypes.DTYPES and isinstance(shape, list):
            if len(shape) <= MOST_AXES and all(map(_is_extent, shape)):
                return name, tuple(shape)
    raise FrameError("expected a dtype and a shape for each array")


def _is_extent(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 48


def _receive_bytes(connection: socket.socket, count: int) -> bytearray:
    """Receive the next bytes; memory grows with the received bytes."""
    buffer = bytearray()
    while len(buffer) < count:
        chunk = connection.recv(min(count - len(buffer), 1 << 18))
        if not chunk:
            raise EOFError
        buffer += chunk
    return buffer


def _receive_into(connection: socket.socket, buffer: Any) -> Any:
    """Fill a buffer with received bytes."""
    view, at = memoryview(buffer), 0
    while at < len(view):
        count = connection.recv_into(view[at:])
        if not count:
            raise EOFError
        at += count
    return buffer
