"""Status requests between ranks over the encrypted connections of the job."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import count

from toolkit.comm.side_channel import (
    PROCESS_ENDED,
    REQUEST_TIMEOUT,
    Handler,
    Request,
    Response,
)
from toolkit.comm.sockets.group import SocketGroup
from toolkit.comm.sockets.node import REQUEST


class SocketSideChannel:
    """Endpoint of this rank: the thread that receives messages answers requests.

    Args:
        group: the group of the job; all its ranks create one.
        handle_request: a function from a request dict to the response.

    Attributes:
        addresses: the addresses of all ranks.
    """

    def __init__(self, group: SocketGroup, handle_request: Handler) -> None:
        self._node = group.node
        self._members = group.members
        self._channel = f"{group.channel} requests"
        self._numbers = count()
        self.addresses = [self._node.addresses[process] for process in group.members]
        self._node.handlers[self._channel] = handle_request
        group.barrier()  # all ranks can answer

    def send_request(
        self, rank: int, request: Request, timeout: float = REQUEST_TIMEOUT
    ) -> Response:
        """See `SideChannel.send_request`."""
        return self._receive(rank, self._send(rank, request), timeout)

    def send_requests(
        self, ranks: Sequence[int], request: Request
    ) -> dict[int, Response]:
        """Return the answers of several ranks, requested in parallel."""
        numbers = [self._send(rank, request) for rank in ranks]
        end = time.monotonic() + REQUEST_TIMEOUT
        return {
            rank: self._receive(rank, number, end - time.monotonic())
            for rank, number in zip(ranks, numbers, strict=True)
        }

    def close(self) -> None:
        """Stop answering."""
        self._node.handlers.pop(self._channel, None)
        self._node.inbox.close(self._channel)

    def _send(self, rank: int, request: Request) -> int:
        """Send a request without a wait, and return its number."""
        process, number = self._members[rank], next(self._numbers)
        content = json.dumps(request).encode()
        self._node.send(process, REQUEST, self._channel, number, len(content), content)
        return number

    def _receive(self, rank: int, number: int, timeout: float) -> Response:
        process, inbox = self._members[rank], self._node.inbox
        message = inbox.wait_for(self._channel, process, number, timeout)
        if message is not None:
            return json.loads(message.content.tobytes())
        return PROCESS_ENDED if process in inbox.lost_processes else None
