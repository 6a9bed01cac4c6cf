"""Pinned memory of the host: what a device copies while the processor goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np


class PinnedRing:
    """Buffers that arrays are put into before a device copies them, in turn.

    A buffer is filled again only when its last copy is done: with two of them, one is
    filled while the device reads the other.

    Args:
        allocate: makes a pinned buffer of a number of bytes, a uint8 array.
        make_event: makes an event, with `record(stream)` and `synchronize()`.
        count: how many buffers there are.
    """

    def __init__(
        self,
        allocate: Callable[[int], Any],
        make_event: Callable[[], Any],
        count: int = 2,
    ) -> None:
        self.allocate = allocate
        self.make_event = make_event
        # (buffer, the event behind its last copy), the least recently used first.
        self.slots: deque[tuple[Any, Any]] = deque([(None, None)] * count)

    def put(
        self, host: np.ndarray[Any, Any], copy: Callable[[Any], None], stream: Any
    ) -> None:
        """Start a copy of an array that may change as soon as this returns.

        Args:
            host: what to copy, in row-major order.
            copy: starts the copy of a uint8 array of pinned memory on the stream.
            stream: on which it runs.
        """
        buffer, event = self.slots.popleft()
        if event is not None:
            event.synchronize()
        if buffer is None or buffer.nbytes < host.nbytes:
            buffer = self.allocate(host.nbytes)
        pinned = buffer[: host.nbytes]
        np.copyto(pinned, host.reshape(-1).view(np.uint8))
        copy(pinned)
        event = event or self.make_event()
        event.record(stream)
        self.slots.append((buffer, event))
