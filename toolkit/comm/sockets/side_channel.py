"""Status requests between ranks over the encrypted connections of the job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count

from toolkit.comm.side_channel import (
    PROCESS_ENDED,
    REQUEST_TIMEOUT,
    Handler,
    Request,
    Response,
    request_all,
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
        process, number = self._members[rank], next(self._numbers)
        content = json.dumps(request).encode()
        self._node.send(process, REQUEST, self._channel, number, len(content), content)
        message = self._node.inbox.wait_for(self._channel, process, number, timeout)
        if message is not None:
            return json.loads(message.content.tobytes())
        return PROCESS_ENDED if process in self._node.inbox.lost_processes else None

    def send_requests(
        self, ranks: Sequence[int], request: Request
    ) -> dict[int, Response]:
        """Return the answers of several ranks, requested in parallel."""
        return request_all(lambda rank: self.send_request(rank, request), ranks)

    def close(self) -> None:
        """Stop answering."""
        self._node.handlers.pop(self._channel, None)
        self._node.inbox.close(self._channel)
