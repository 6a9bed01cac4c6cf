"""Rendezvous of the processes of a job: rank 0 distributes their addresses."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from toolkit import settings
from toolkit.comm.account_secret import account_secret
from toolkit.comm.sockets.group import SocketGroup, channel_of
from toolkit.comm.sockets.keys import SECRET_COMMAND, derive_keys
from toolkit.comm.sockets.node import Address, Node
from toolkit.errors import JoinError, LaunchError, RankLostError

# Seconds until all processes must be connected.
JOIN_TIMEOUT = 300.0
_CHANNEL = "join"
# Ports for the jobs of Slurm, which names none.
_FIRST_PORT, _NUM_PORTS = 20_000, 10_000
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Membership(NamedTuple):
    """Membership of a process in a job.

    Attributes:
        rank: the rank, before any loss.
        size: the number of processes.
        endpoint: the address to listen at.
        root: the address of rank 0.
        host: the host name of this process, if it listens on all networks.
        secret: the secret of the job.
        folder: the private folder of a job of `toolkit run`.
    """

    rank: int
    size: int
    endpoint: str
    root: str
    host: str
    secret: bytes
    folder: Path | None = None


def find_membership(size: int) -> Membership:
    """Return the membership of this process, as its launcher describes it.

    Args:
        size: the number of processes.

    Raises:
        LaunchError: a variable or the secret is missing.
    """
    variables = os.environ
    folder = settings.environment("JOB")
    if folder is not None:
        rank = _read_number("TOOLKIT_RANK")
        secret = Path(folder, "secret").read_bytes()
        root, endpoint = f"ipc://{folder}/0", f"ipc://{folder}/{rank}"
        return Membership(rank, size, endpoint, root, "", secret, Path(folder))
    job_address = settings.environment("JOB_ADDRESS")
    if job_address is not None:
        address, _, digits = job_address.rpartition(":")
        if not (address and digits.isdecimal()):
            raise LaunchError(
                "TOOLKIT_JOB_ADDRESS: expected HOST:PORT of rank 0; received "
                f"{job_address!r}"
            )
        rank = _read_number("TOOLKIT_RANK")
        return _network_membership(rank, size, address.strip("[]"), int(digits), False)
    if "SLURM_PROCID" in variables and "RANK" not in variables:
        rank = _read_number("SLURM_PROCID")
        nodes = variables.get(
            "SLURM_STEP_NODELIST", variables.get("SLURM_NODELIST", "")
        )
        address = variables.get("MASTER_ADDR") or first_host(nodes)
        job = _read_number("SLURM_JOB_ID") * 31 + int(variables.get("SLURM_STEP_ID", 0))
        port = _FIRST_PORT + job % _NUM_PORTS
        is_local = variables.get("SLURM_STEP_NUM_NODES") == "1"
    else:
        name = "RANK" if "RANK" in variables else "JOB_COMPLETION_INDEX"
        rank, port = _read_number(name), 29_500
        address = _read("MASTER_ADDR")
        is_local = variables.get("LOCAL_WORLD_SIZE") == str(size)
    if "MASTER_PORT" in variables:
        # The store of torch listens at the port itself.
        port = _read_number("MASTER_PORT") + 1
    return _network_membership(rank, size, address, port, is_local)


def is_loopback(host: str) -> bool:
    """Return whether a name of a host is of the machine that reads it."""
    return host in _LOOPBACK_NAMES


def _network_membership(
    rank: int, size: int, address: str, port: int, is_local: bool
) -> Membership:
    """Return the membership in a job over a network.

    Args:
        rank: the rank of this process.
        size: the number of processes.
        address: the host of rank 0.
        port: the port at which rank 0 listens.
        is_local: whether all processes are on one machine.
    """
    is_local |= is_loopback(address)
    secret = _find_secret(is_local)
    if is_local:
        endpoint = f"tcp://127.0.0.1:{port if rank == 0 else '*'}"
        return Membership(rank, size, endpoint, f"tcp://127.0.0.1:{port}", "", secret)
    host = address if rank == 0 else _local_host(address, port)
    endpoint = f"tcp://*:{port if rank == 0 else '*'}"
    return Membership(
        rank, size, endpoint, f"tcp://{_quote(address)}:{port}", host, secret
    )


def _read(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise LaunchError(
            f"{name}: expected the value from the launcher of the job; received nothing"
        )
    return value


def _read_number(name: str) -> int:
    value = _read(name)
    if not value.isdecimal():
        raise LaunchError(f"{name}: expected a number; received {value!r}")
    return int(value)


def _find_secret(is_local: bool) -> bytes:
    secret = settings.environment("JOB_SECRET")
    if secret is not None:
        return secret.strip().encode()
    if is_local:
        return account_secret("job_secret", "TOOLKIT_JOB_SECRET")
    raise LaunchError(
        "TOOLKIT_JOB_SECRET: expected the secret of a job on several machines; it is "
        "not set. Set it to the same value for all processes, so that no other program "
        f"can join the job. Create one: {SECRET_COMMAND}"
    )


def first_host(nodes: str) -> str:
    """Return the first host of a list of Slurm, such as `a[03-07,9],b`."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", nodes)
    if match is None:
        raise LaunchError(
            f"SLURM_STEP_NODELIST: expected a list of hosts; received {nodes!r}"
        )
    return match[1] + (match[2] or "") + match[3]


def _quote(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _local_host(address: str, port: int) -> str:
    """Return the address of this machine on its way to another one.

    The name of a new machine can be unknown for some time.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT
    while True:
        try:
            family, kind, *_, target = socket.getaddrinfo(
                address, port, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, kind) as probe:
                probe.connect(target)  # sends nothing
                return _quote(probe.getsockname()[0])
        except OSError as error:
            if time.monotonic() > deadline:
                raise JoinError(
                    f"MASTER_ADDR: cannot find a way to {address!r}: {error}"
                ) from None
            time.sleep(0.5)


def join_job(
    membership: Membership,
    on_abort: Callable[[int], object] = os._exit,
    timeout: float = JOIN_TIMEOUT,
) -> SocketGroup:
    """Connect to all processes of a job, and return their group.

    Args:
        membership: the membership of this process.
        on_abort: a function of the exit code that ends this process.
        timeout: seconds until all processes must be connected.

    Raises:
        JoinError: some processes do not connect in time.
    """
    keys = derive_keys(membership.secret)
    node = Node(membership.rank, keys, membership.endpoint, membership.host, on_abort)
    deadline = time.monotonic() + timeout
    try:
        if membership.rank == 0:
            addresses = _collect_addresses(node, membership, deadline)
        else:
            addresses = _request_addresses(node, membership, deadline)
    except BaseException:
        node.close(0)
        raise
    for address in addresses:
        node.connect(address)
    members = range(membership.size)
    return SocketGroup(node, channel_of(members), members)


def _collect_addresses(
    node: Node, membership: Membership, deadline: float
) -> list[Address]:
    """Receive the addresses of all other ranks, and send the complete list to them."""
    missing_ranks = set(range(1, membership.size))
    addresses = [node.address]
    while missing_ranks:
        version = node.inbox.version
        for rank in sorted(missing_ranks):
            messages = node.inbox.peek(_CHANNEL, rank, 0)
            if messages:
                size, *fields = json.loads(messages[0].content.tobytes())
                if size != membership.size:
                    raise JoinError(
                        f"sockets: rank {rank} expects {size} processes in this job, "
                        f"and rank 0 expects {membership.size}"
                    )
                address = Address(*fields)
                node.connect(address)
                addresses.append(address)
                missing_ranks.remove(rank)
        _raise_if_ended(membership, missing_ranks)
        if time.monotonic() > deadline:
            raise JoinError(_describe_missing(sorted(missing_ranks)))
        if missing_ranks:
            node.inbox.wait(version, 0.1)
    for address in addresses[1:]:
        if len(node.inbox.peek(_CHANNEL, address.process, 0)) > 1:
            raise JoinError(f"sockets: two processes have rank {address.process}")
        node.send_json(address.process, _CHANNEL, addresses)
    return addresses


def _request_addresses(
    node: Node, membership: Membership, deadline: float
) -> list[Address]:
    """Send the address of this process to rank 0, and receive all addresses."""
    node.connect(Address(0, membership.root, "", 0))
    node.send_json(0, _CHANNEL, [membership.size, *node.address])
    while True:
        try:
            table = node.receive_json(0, _CHANNEL, deadline=time.monotonic() + 0.5)
            break
        except TimeoutError:
            _raise_if_ended(membership, {0})
            if time.monotonic() > deadline:
                raise JoinError(
                    f"sockets: {_describe_missing([0])} at {membership.root}. Check "
                    "that this machine can connect to that address, and that "
                    "TOOLKIT_JOB_SECRET is the same for all processes"
                ) from None
        except RankLostError:
            raise JoinError("sockets: rank 0 ended before the job began") from None
    addresses = [Address(*fields) for fields in table]
    node.addresses[0] = addresses[0]
    return addresses


def _raise_if_ended(membership: Membership, ranks: set[int]) -> None:
    """Raise an error if the launcher reports that a rank has ended."""
    for rank in sorted(ranks):
        if has_ended(membership.folder, rank):
            raise JoinError(f"sockets: rank {rank} ended before the job began")


def has_ended(folder: Path | None, process: int) -> bool:
    """Return whether the launcher reports that a process has ended."""
    return folder is not None and Path(folder, f"ended-{process}").exists()


def _describe_missing(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names} did not connect in time"
