"""Engine of jobs over sockets: see `toolkit.comm.engine`."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from toolkit import settings
from toolkit.comm.engine import ElasticGroup
from toolkit.comm.group import exchange
from toolkit.comm.launchers import JOB_VARIABLES, PRIVATE_JOB_VARIABLES
from toolkit.comm.sockets.bridge import SocketBridge
from toolkit.comm.sockets.group import SocketGroup
from toolkit.comm.sockets.keys import derive_keys
from toolkit.comm.sockets.node import Address, Node
from toolkit.comm.sockets.rendezvous import Membership, find_membership, join_job


class SocketEngine:
    """Engine of jobs over sockets.

    Args:
        variable: the environment variable in which the launcher declares the size.
        size: the number of processes that it declares.
    """

    def __init__(self, variable: str, size: int) -> None:
        self._variable, self._size = variable, size
        self._node: Node | None = None
        self._folder: Path | None = None

    def world_group(self) -> SocketGroup:
        """See `Engine.world_group`."""
        membership = find_membership(self._size)
        group = join_job(membership, os._exit)
        self._start(group.node, membership)
        return group

    def _start(self, node: Node, membership: Membership) -> None:
        """Use the connections of this process, which its children do not get."""
        self._node, self._folder = node, membership.folder
        atexit.register(self.finish)  # for scripts without `toolkit.launch`
        if any(name in os.environ for name in PRIVATE_JOB_VARIABLES):
            for name in (*JOB_VARIABLES, "TOOLKIT_JOB_SECRET"):
                os.environ.pop(name, None)

    def bridge_to_job(self) -> SocketBridge | None:
        """See `Engine.bridge_to_job`."""
        path = settings.environment("REPLACEMENT")
        if path is None:
            return None
        membership = find_membership(self._size)
        assert membership.folder is not None
        members, new_members = json.loads(Path(path).read_text("utf-8"))
        addresses = [Address(*fields) for fields in members]
        node = Node(
            membership.rank, derive_keys(membership.secret), membership.endpoint
        )
        self._start(node, membership)
        siblings = [
            node.address._replace(
                process=process, endpoint=f"ipc://{membership.folder}/{process}"
            )
            for process in new_members
        ]
        for address in (*addresses, *siblings):
            if address.process != node.process:
                node.connect(address)
                node.introduce(address.process)
        old_members = [address.process for address in addresses]
        return SocketBridge(node, new_members, old_members, membership.folder)

    def abort(self, code: int) -> None:
        """See `Engine.abort`."""
        if self._node is not None:
            self._node.abort(code)

    def finish(self) -> None:
        """See `Engine.finish`."""
        if self._node is not None:
            self._node.close()
            self._node = None

    def spawn(
        self, group: ElasticGroup, arguments: Sequence[str], count: int
    ) -> SocketBridge:
        """See `Engine.spawn`; the launcher starts a process for each new file.

        `arguments` has no effect: the launcher starts the command of the job.
        """
        assert isinstance(group, SocketGroup)
        assert self._folder is not None
        folder = self._folder
        processes: list[int] = []
        if group.rank == 0:
            processes = _reserve_processes(folder, max(group.node.addresses), count)
            addresses = [group.node.addresses[process] for process in group.members]
            for process in processes:
                temporary = Path(folder, f"new-{process}")
                temporary.write_text(json.dumps([addresses, processes]), "utf-8")
                temporary.rename(Path(folder, f"start-{process}"))
        processes = exchange(group, processes)[0]
        return SocketBridge(group.node, group.members, processes, folder)


def _reserve_processes(folder: Path, newest: int, count: int) -> list[int]:
    """Return numbers that no process of the job has or had."""
    processes: list[int] = []
    while len(processes) < count:
        newest += 1
        with suppress(FileExistsError):
            Path(folder, f"reserved-{newest}").touch(exist_ok=False)
            processes.append(newest)
    return processes
