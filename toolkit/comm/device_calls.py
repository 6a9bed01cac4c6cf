"""Record of the collectives that the GPU of a rank runs, for the watchdog.

A captured program calls no function of the host between its collectives. So the host
records the collectives that it submits, and checks the other ranks while it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toolkit.comm.flight_recorder import GroupRecord
from toolkit.comm.group import Group
from toolkit.comm.watchdog import WatchedGroup
from toolkit.errors import RankLostError

# Number of collectives that a message names.
_MAX_NAMES = 3
_OPERATION = "on the GPU"


class DeviceCalls:
    """Collectives of a group of GPUs that this rank has submitted.

    Args:
        control: the group of the same ranks for host bytes.
    """

    def __init__(self, control: Group) -> None:
        self._control = control if isinstance(control, WatchedGroup) else None
        self._record: GroupRecord | None = None
        if self._control is not None:
            self._record = self._control.watch_device()
        self._names: Sequence[str] = ()

    def submit(self, names: Sequence[str]) -> None:
        """Record collectives, in their order on all ranks.

        Args:
            names: the operation and the layers of each one.
        """
        self._names = names
        if self._record is not None:
            self._record.count += len(names)

    def check(self) -> None:
        """Raise an error if a rank is lost, or has failed.

        Raises:
            RankLostError: a rank is lost.
            ToolkitError: the error of a rank that failed.
        """
        if self._control is not None:
            self._control.check()
        if self._record is not None and self._record.lost_rank is not None:
            raise RankLostError(
                f"rank {self._record.lost_rank} is lost: its process has ended"
            )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Return a context in which this rank waits for the collectives."""
        if self._record is None or self._record.current is not None:
            yield
            return
        text = ", ".join(self._names[:_MAX_NAMES])
        if len(self._names) > _MAX_NAMES:
            text += f" and {len(self._names) - _MAX_NAMES} more"
        with self._record.record_wait(_OPERATION, text):
            yield
