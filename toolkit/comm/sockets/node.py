"""Connections of this process to all other processes of the job.

Each process listens at one address, and connects to the address of each peer. Both
directions of a pair thus have their own connection. One thread receives all messages
and puts them into the inbox. A connection ends only with its process, so the thread
reports the loss of a process when its connection ends.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from toolkit.comm.group import Buffer
from toolkit.comm.sockets.inbox import Inbox, Message
from toolkit.comm.sockets.keys import Keys, library
from toolkit.errors import JoinError, RankLostError

if TYPE_CHECKING:
    from zmq import Frame, Socket

# Maximum size in bytes of a chunk; strangers cannot make this process allocate more.
CHUNK_SIZE = 1 << 20
_MAX_MESSAGE = CHUNK_SIZE + (64 << 10)
# Kinds of messages.
DATA, ACKNOWLEDGE, INTRODUCE, REVOKE, ABORT, LEAVE, LOST, REQUEST = range(8)
# Kind, sender, tag, and bytes of the complete message; the channel's name follows.
_HEADER = struct.Struct("!BIqQ")
# Milliseconds. A stopped process answers no heartbeat, and the watchdog handles it, so
# only a process whose machine is lost should exceed the last one.
_RECONNECT, _HANDSHAKE, _HEARTBEAT, _HEARTBEAT_TIMEOUT = 20, 5_000, 5_000, 60_000
# Seconds in which messages can still arrive after the end of the other connection.
_LOSS_DELAY = 0.02
# Seconds until the thread looks for new peers.
_POLL_SECONDS = 0.2
# Failed handshakes after which the secrets of two processes differ.
_MAX_REJECTIONS = 20
_Frames: TypeAlias = Sequence[Any]
_Json: TypeAlias = Any
_AUTHORIZATION = "inproc://zeromq.zap.01"


class Address(NamedTuple):
    """Address of a process of a job.

    Attributes:
        process: its number, unique in the job.
        endpoint: the address at which it listens, as ZeroMQ writes it.
        machine: the name of its machine, different for all machines.
        pid: its process ID.
    """

    process: int
    endpoint: str
    machine: str
    pid: int


def machine_name() -> str:
    """Return a unique name of this machine."""
    boot_id = ""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{socket.gethostname()} {boot_id}"


class _Link:
    """Outgoing connection to a peer."""

    def __init__(self, sender: Socket[bytes], monitor: Socket[bytes]) -> None:
        self.sender, self.monitor = sender, monitor
        self.lock = threading.Lock()
        self.is_connected = self.is_closed = False
        self.rejections = 0

    def send(self, frames: _Frames) -> None:
        with self.lock:
            if not self.is_closed:
                self.sender.send_multipart(frames)

    def close(self, linger: int = 0) -> None:
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self.sender.disable_monitor()
                self.sender.close(linger)


class Node:
    """This process in the network of the job.

    Args:
        process: the number of this process.
        keys: the keys of the job.
        endpoint: the address to listen at.
        host: the host name for peers, if `endpoint` listens on all networks.
        on_abort: a function of the exit code that ends this process.

    Attributes:
        address: the address of this process.
        addresses: the addresses of all known processes, by process.
        inbox: the received messages.
        handlers: functions that answer requests, by channel.
    """

    def __init__(
        self,
        process: int,
        keys: Keys,
        endpoint: str,
        host: str = "",
        on_abort: Callable[[int], object] = os._exit,
    ) -> None:
        zmq = library()
        self._zmq = zmq
        self._keys = keys
        self._on_abort = on_abort
        self.inbox = Inbox()
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 60_000)
        self._authorizer = self._context.socket(zmq.REP)
        self._authorizer.bind(_AUTHORIZATION)
        self._receiver = self._listen(endpoint)
        bound = self._receiver.get_string(zmq.LAST_ENDPOINT)
        if host:
            bound = f"tcp://{host}:{bound.rpartition(':')[2]}"
        self.address = Address(process, bound, machine_name(), os.getpid())
        self.addresses = {process: self.address}
        self.handlers: dict[str, Callable[[Any], Any]] = {}
        self._links: dict[int, _Link] = {}
        self._loss_times: dict[int, float] = {}
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="toolkit messages", daemon=True
        )
        self._thread.start()

    @property
    def process(self) -> int:
        """Return the number of this process."""
        return self.address.process

    def _listen(self, endpoint: str) -> Socket[bytes]:
        zmq = self._zmq
        receiver: Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._set_options(receiver)
        receiver.curve_server = True
        receiver.curve_secretkey = self._keys.server_private
        receiver.set(zmq.ZAP_DOMAIN, b"toolkit")
        receiver.set(zmq.BACKLOG, 1024)
        try:
            receiver.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise JoinError(
                f"sockets: cannot listen at {endpoint}: {error}. Another job can use "
                "this port, or two processes have the same rank"
            ) from None
        return receiver

    def _set_options(self, endpoint: Socket[bytes]) -> None:
        zmq = self._zmq
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.MAXMSGSIZE, _MAX_MESSAGE),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT),
            (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT),
            (zmq.RECONNECT_IVL, _RECONNECT),
        ):
            endpoint.set(option, value)

    # --- sending ----------------------------------------------------------------------

    def connect(self, address: Address) -> None:
        """Connect to a peer, which can start to listen later."""
        if address.process == self.process or address.process in self._links:
            return
        zmq = self._zmq
        sender: Socket[bytes] = self._context.socket(zmq.DEALER)
        self._set_options(sender)
        sender.curve_serverkey = self._keys.server_public
        sender.curve_publickey = self._keys.client_public
        sender.curve_secretkey = self._keys.client_private
        if "[" in address.endpoint:
            sender.set(zmq.IPV6, 1)
        monitor = sender.get_monitor_socket()
        sender.connect(address.endpoint)
        self.addresses[address.process] = address
        self._links[address.process] = _Link(sender, monitor)
        self.inbox.notify()

    def send(
        self,
        process: int,
        kind: int,
        channel: str = "",
        tag: int = 0,
        total: int = 0,
        content: Buffer | bytes = b"",
    ) -> None:
        """Send a message to a connected peer; a lost peer gets nothing."""
        header = _HEADER.pack(kind, self.process, tag, total) + channel.encode()
        link = self._links.get(process)
        if link is not None:
            link.send([header, content])

    def send_json(
        self, process: int, channel: str, value: object, tag: int = 0
    ) -> None:
        """Send a JSON value as one message of a channel."""
        content = json.dumps(value).encode()
        self.send(process, DATA, channel, tag, len(content), content)

    def introduce(self, process: int) -> None:
        """Send the address of this process, so that the peer connects to it."""
        content = json.dumps(self.address).encode()
        self.send(process, INTRODUCE, content=content)

    # --- receiving --------------------------------------------------------------------

    def receive_json(
        self, process: int, channel: str, tag: int = 0, deadline: float = float("inf")
    ) -> _Json:
        """Wait for a JSON value from a peer, and return it.

        Raises:
            RankLostError: the peer has ended.
            JoinError: the secrets differ.
            TimeoutError: the deadline passes.
        """
        while True:
            version = self.inbox.version
            message = self.inbox.pop(channel, process, tag)
            if message is not None:
                return json.loads(message.content.tobytes())
            if process in self.inbox.lost_processes:
                raise RankLostError(f"process {process} of the job has ended")
            self.raise_if_rejected()
            if time.monotonic() > deadline:
                raise TimeoutError
            self.inbox.wait(version, 0.1)

    def raise_if_rejected(self) -> None:
        """Raise an error if a peer has another secret."""
        for process, link in list(self._links.items()):
            if link.rejections > _MAX_REJECTIONS:
                raise JoinError(
                    f"sockets: {self.addresses[process].endpoint} rejects this "
                    "process. Another program uses this port, or TOOLKIT_JOB_SECRET "
                    "is not the same for all processes of the job"
                )

    def _run(self) -> None:
        """Receive until the node is closed."""
        zmq = self._zmq
        count, poller = -1, zmq.Poller()
        while not self._is_closed:
            if count != len(self._links):
                poller, count = zmq.Poller(), len(self._links)
                poller.register(self._receiver, zmq.POLLIN)
                poller.register(self._authorizer, zmq.POLLIN)
                for link in list(self._links.values()):
                    poller.register(link.monitor, zmq.POLLIN)
            seconds = _LOSS_DELAY if self._loss_times else _POLL_SECONDS
            events = dict(poller.poll(1000 * seconds))
            if self._authorizer in events:
                self._authorize()
            if self._receiver in events:
                self._receive()
            for process, link in list(self._links.items()):
                if link.monitor in events:
                    self._observe(process, link)
            self._report_losses()

    def _authorize(self) -> None:
        """Accept clients with the key of the job: the protocol ZAP of ZeroMQ."""
        from zmq.utils import z85

        version, request, _, _, _, mechanism, *credentials = (
            self._authorizer.recv_multipart()
        )
        is_member = mechanism == b"CURVE" and credentials == [
            z85.decode(self._keys.client_public)
        ]
        status = [b"200", b"OK"] if is_member else [b"400", b"unknown key"]
        self._authorizer.send_multipart([version, request, *status, b"", b""])

    def _receive(self) -> None:
        """Handle all messages that have arrived."""
        zmq = self._zmq
        while True:
            try:
                frames = self._receiver.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if len(frames) == 3 and len(frames[1].buffer) >= _HEADER.size:
                self._handle(frames[1].bytes, frames[2])

    def _handle(self, header: bytes, frame: Frame) -> None:
        kind, source, tag, total = _HEADER.unpack_from(header)
        channel = header[_HEADER.size :].decode()
        if kind == DATA:
            content = np.frombuffer(frame.buffer, np.uint8)
            self.inbox.push(channel, source, tag, Message(total, content))
        elif kind == ACKNOWLEDGE:
            self.inbox.add_unacknowledged(channel, source, -total)
        elif kind == INTRODUCE:
            self.connect(Address(*json.loads(frame.bytes)))
        elif kind == REVOKE:
            self.inbox.revoke(channel)
        elif kind == ABORT:
            self._on_abort(tag)
        elif kind == REQUEST and channel in self.handlers:
            with suppress(Exception):  # an invalid request gets no answer
                response = self.handlers[channel](json.loads(frame.bytes))
                self.send_json(source, channel, response, tag)
        elif kind == LOST:
            self.mark_lost(tag)
        elif kind == LEAVE:
            self._loss_times.setdefault(source, time.monotonic() + _LOSS_DELAY)

    def _observe(self, process: int, link: _Link) -> None:
        """Handle an event of the connection to a peer."""
        zmq = self._zmq
        from zmq.utils.monitor import recv_monitor_message

        with suppress(zmq.ZMQError):
            while link.monitor.poll(0):
                event = recv_monitor_message(link.monitor)["event"]
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    link.is_connected, link.rejections = True, 0
                elif event == zmq.EVENT_DISCONNECTED and link.is_connected:
                    self._loss_times.setdefault(process, time.monotonic() + _LOSS_DELAY)
                elif event in (
                    zmq.EVENT_DISCONNECTED,
                    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
                    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
                ):
                    link.rejections += 1

    def _report_losses(self) -> None:
        current = time.monotonic()
        for process, end in list(self._loss_times.items()):
            if current >= end:
                del self._loss_times[process]
                self.mark_lost(process)

    # --- failures ---------------------------------------------------------------------

    def mark_lost(self, process: int) -> None:
        """Record that a peer has ended, close the connection, and inform all peers.

        A peer may not have been connected yet.
        """
        if process not in self.inbox.lost_processes:
            self.inbox.mark_lost(process)
            if process in self._links:
                self._links[process].close()
            for peer in list(self._links):
                self.send(peer, LOST, tag=process)

    def revoke(self, channel: str, members: Sequence[int]) -> None:
        """Abort the calls of a channel in all of its processes."""
        self.inbox.revoke(channel)
        for process in members:
            self.send(process, REVOKE, channel)

    def abort(self, code: int) -> None:
        """End all other processes of the job with this exit code."""
        for process in list(self._links):
            self.send(process, ABORT, tag=code)
        time.sleep(0.1)  # another thread sends the messages

    def close(self, linger: float = 2.0) -> None:
        """Leave the job, after all messages are sent.

        Args:
            linger: the maximum time in seconds to send them.
        """
        for process in list(self._links):
            self.send(process, LEAVE)
        self._is_closed = True
        self._thread.join()
        for link in self._links.values():
            link.close(int(1000 * linger))
            # Not earlier: ZeroMQ waits until a monitor has received all events.
            link.monitor.close(0)
        self._authorizer.close(0)
        self._receiver.close(0)
        self._context.term()
