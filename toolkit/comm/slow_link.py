"""Simulated slow link, to measure the effect of a network on one machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

from toolkit import settings
from toolkit.comm.group import Buffer, Group, as_bytes
from toolkit.errors import ArgumentError


def with_simulated_link(group: Group) -> Group:
    """Return the group, slowed if TOOLKIT_LINK="latency,bandwidth" is set."""
    value = settings.environment("LINK")
    if value is None:
        return group
    try:
        latency, bandwidth = map(float, value.split(","))
    except ValueError:
        raise ArgumentError(
            "TOOLKIT_LINK: expected seconds and bytes per second, such as "
            f"'0.001,100e6'; received {value!r}"
        ) from None
    return SlowGroup(group, latency, bandwidth)


class SlowGroup:
    """Group whose calls take the additional time of a slow link.

    A call that moves b bytes between this rank and other ranks takes `latency` + b /
    `bandwidth` more seconds. b is the maximum of the sent and received bytes, because
    links are full duplex.

    Args:
        group: the group that moves the bytes.
        latency: seconds of each call.
        bandwidth: bytes per second.
    """

    is_remote = True

    def __init__(self, group: Group, latency: float, bandwidth: float) -> None:
        if latency < 0 or not bandwidth > 0:
            raise ArgumentError(
                "SlowGroup: expected latency >= 0 and bandwidth > 0; received "
                f"{latency} and {bandwidth}"
            )
        self.group = group
        self.latency = latency
        self.bandwidth = bandwidth
        self.rank = group.rank
        self.size = group.size

    def _delay(self, sent: int, received: int) -> None:
        if self.size > 1:
            time.sleep(self.latency + max(sent, received) / self.bandwidth)

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        self.group.all_gather(send, receive)
        nbytes = as_bytes(send).size * (self.size - 1)
        self._delay(nbytes, nbytes)

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        self.group.all_gather_varying(send, receive, counts)
        local_count = counts[self.rank]
        self._delay(local_count * (self.size - 1), sum(counts) - local_count)

    def all_to_all(
        self,
        send: Buffer,
        send_counts: Sequence[int],
        receive: Buffer,
        receive_counts: Sequence[int],
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
    ) -> None:
        """See `Group.all_to_all`."""
        self.group.all_to_all(
            send, send_counts, receive, receive_counts, send_offsets, receive_offsets
        )
        self._delay(
            sum(send_counts) - send_counts[self.rank],
            sum(receive_counts) - receive_counts[self.rank],
        )

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`; ranks forward the data, so each rank moves it once."""
        self.group.broadcast(buffer, root)
        self._delay(as_bytes(buffer).size, 0)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        self._delay(as_bytes(buffer).size, 0)
        self.group.send(buffer, to, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`; the sender already waited for the link."""
        self.group.receive(buffer, source, tag)

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self.group.barrier()
        self._delay(0, 0)

    def split(self, color: int, key: int) -> SlowGroup:
        """See `Group.split`."""
        subgroup = self.group.split(color, key)
        return SlowGroup(subgroup, self.latency, self.bandwidth)

    def duplicate(self) -> SlowGroup:
        """See `Group.duplicate`."""
        return SlowGroup(self.group.duplicate(), self.latency, self.bandwidth)

    def close(self) -> None:
        """See `Group.close`."""
        self.group.close()
