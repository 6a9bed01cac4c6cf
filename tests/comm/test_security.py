"""Attacks of strangers on a job over sockets: they change nothing."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from tests.comm import ranks, virtual
from toolkit import comm
from toolkit.comm.sockets import node as messages
from toolkit.comm.sockets.keys import derive_keys
from toolkit.errors import LaunchError

RANKS = 2
KEYS = derive_keys(virtual.SECRET)
OTHER_KEYS = derive_keys(b"the secret of another job")
# The first bytes of ZMTP 3.1: signature, version, mechanism, and whether it serves.
GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1%b" + bytes(32)
FRAME = struct.Struct("!BQ")
STAYING = []  # connections until the end of the test


@pytest.fixture(autouse=True)
def close_connections():
    """Close the connections that stay open during a test."""
    yield
    for connection in STAYING:
        connection.close()
    STAYING.clear()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 5)


def send_bytes(port, *chunks, close=True):
    """Send bytes to a port, and read the answer."""
    stranger = connect(port)
    with suppress(OSError):
        for chunk in chunks:
            stranger.sendall(chunk)
            time.sleep(0.01)
        stranger.settimeout(0.2)
        stranger.recv(4096)
    if close:
        stranger.close()
    else:
        STAYING.append(stranger)


def greet(mechanism):
    return GREETING % mechanism.ljust(20, b"\0")


def abort_message(kind=messages.ABORT, source=1, tag=7, channel=b""):
    """Return the header of a message that would end or disturb the job."""
    return struct.pack("!BIqQ", kind, source, tag, 0) + channel


def send_zmq(port, *contents, keys=None, server=None, kind=zmq.DEALER, plain=False):
    """Send messages by ZeroMQ, with some keys or without encryption."""
    context = zmq.Context()
    sender = context.socket(kind)
    sender.linger = 0
    if keys is not None:
        sender.curve_publickey, sender.curve_secretkey = keys
        sender.curve_serverkey = server
    if plain:
        sender.plain_username, sender.plain_password = b"root", b"root"
    sender.connect(f"tcp://127.0.0.1:{port}")
    with suppress(zmq.ZMQError):
        for content in contents or [abort_message()]:
            sender.send_multipart([content, b"stranger"], zmq.NOBLOCK)
    time.sleep(0.3)
    context.destroy(linger=0)


def flood(port, count, *chunks):
    strangers = [connect(port) for _ in range(count)]
    for stranger in strangers:
        with suppress(OSError):
            for chunk in chunks:
                stranger.sendall(chunk)
    time.sleep(0.1)
    for stranger in strangers:
        stranger.close()


def reset(port):
    for _ in range(200):
        stranger = connect(port)
        option = struct.pack("ii", 1, 0)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        stranger.close()


def trickle(port):
    with suppress(OSError), connect(port) as stranger:
        for byte in greet(b"CURVE")[:20]:
            stranger.sendall(bytes([byte]))
            time.sleep(0.02)


def recorded_bytes(port):
    """Return the bytes that a member of the job sends when it joins."""
    recorded = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def forward():
            client, _ = listener.accept()
            server = connect(port)
            STAYING.extend([client, server])

            def copy(source, target, record):
                with suppress(OSError):
                    while chunk := source.recv(4096):
                        record.extend(chunk)
                        target.sendall(chunk)

            for arguments in (
                (client, server, recorded),
                (server, client, bytearray()),
            ):
                threading.Thread(target=copy, args=arguments, daemon=True).start()

        threading.Thread(target=forward, daemon=True).start()
        # A message that changes nothing, from a member: an unknown channel.
        header = abort_message(messages.DATA, channel=b"recorded")
        proxy = listener.getsockname()[1]
        pair = KEYS.client_public, KEYS.client_private
        send_zmq(proxy, header, keys=pair, server=KEYS.server_public)
    assert len(recorded) > 300
    return bytes(recorded)


def replay(port, change=lambda content: [content]):
    send_bytes(port, *change(recorded_bytes(port)))


CURVE = greet(b"CURVE")
STRANGER = zmq.curve_keypair()
JOIN = abort_message(messages.DATA, 1, 0, b"join")
ATTACKS = {
    "connect only": lambda port: send_bytes(port),
    "stay connected": lambda port: send_bytes(port, close=False),
    "random bytes": lambda port: send_bytes(port, os.urandom(4096)),
    "zeros": lambda port: send_bytes(port, bytes(100_000)),
    "HTTP": lambda port: send_bytes(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "TLS": lambda port: send_bytes(port, b"\x16\x03\x01\x02\x00\x01" + bytes(512)),
    "half a greeting": lambda port: send_bytes(port, CURVE[:30]),
    "one byte at a time": trickle,
    "no mechanism": lambda port: send_bytes(port, greet(b"NULL"), bytes(300)),
    "unknown mechanism": lambda port: send_bytes(port, greet(b"NONE"), bytes(300)),
    "very long frame": lambda port: send_bytes(
        port, CURVE, FRAME.pack(6, 1 << 62), bytes(4096)
    ),
    "frame of the limit": lambda port: send_bytes(
        port, CURVE, FRAME.pack(6, 1 << 20), bytes(1 << 20)
    ),
    "false handshake": lambda port: send_bytes(
        port, CURVE, b"\4\xc8\5HELLO\1\0" + os.urandom(192)
    ),
    "no encryption": lambda port: send_zmq(port),
    "password": lambda port: send_zmq(port, plain=True),
    "own keys": lambda port: send_zmq(port, keys=STRANGER, server=STRANGER[0]),
    "known server, own client key": lambda port: send_zmq(
        port, keys=STRANGER, server=KEYS.server_public
    ),
    "known client key, own server": lambda port: send_zmq(
        port, keys=(KEYS.client_public, KEYS.client_private), server=STRANGER[0]
    ),
    "public key of the client": lambda port: send_zmq(
        port, keys=(KEYS.client_public, STRANGER[1]), server=KEYS.server_public
    ),
    "keys of another job": lambda port: send_zmq(
        port,
        keys=(OTHER_KEYS.client_public, OTHER_KEYS.client_private),
        server=OTHER_KEYS.server_public,
    ),
    "join with a taken rank": lambda port: send_zmq(
        port, JOIN, keys=STRANGER, server=KEYS.server_public
    ),
    "revoke and report losses": lambda port: send_zmq(
        port,
        abort_message(messages.REVOKE, channel=b"world"),
        abort_message(messages.LOST, tag=0),
        abort_message(messages.LEAVE),
    ),
    "another kind of socket": lambda port: send_zmq(port, kind=zmq.PUSH),
    "recorded connection": replay,
    "recorded handshake, other data": lambda port: replay(
        port, lambda content: [content[:264], os.urandom(300)]
    ),
    "two recorded connections": lambda port: replay(
        port, lambda content: [content, content]
    ),
    "flood of connections": lambda port: flood(port, 300),
    "flood of greetings": lambda port: flood(port, 100, CURVE),
    "flood of random bytes": lambda port: flood(port, 50, os.urandom(10_000)),
    "connections that are reset": reset,
}


def ports_of(group):
    """Return the port of each rank."""
    endpoints = [address.endpoint for address in group.node.addresses.values()]
    return [int(endpoint.rpartition(":")[2]) for endpoint in endpoints]


def test_attacks_of_strangers_change_nothing(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "use messages")

    def of(group):
        completed = []
        for name, attack in ATTACKS.items():
            if group.rank == 0:
                for port in ports_of(group):
                    attack(port)
            values = comm.exchange(group, [name, group.rank])
            assert values == [[name, rank] for rank in range(RANKS)]
            assert not group.node.inbox.lost_processes, name
            assert not group.node.inbox.peek("join", 1, 0)[1:], name
            completed.append(name)
        return completed

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = virtual.tcp_memberships(port, RANKS)
    assert virtual.run(RANKS, of, timeout=120, job=job) == [[*ATTACKS]] * RANKS
    assert len(ATTACKS) >= 20


def test_attacks_would_work_with_the_keys():
    """The attacks fail because of the keys, and not because they are malformed."""
    codes = []
    node = messages.Node(0, KEYS, "tcp://127.0.0.1:*", on_abort=codes.append)
    port = int(node.address.endpoint.rpartition(":")[2])
    pair = KEYS.client_public, KEYS.client_private
    send_zmq(port, keys=pair, server=KEYS.server_public)
    node.close(0)
    assert codes == [7]


def test_a_false_first_rank_gets_nothing():
    """A program that has taken the port of rank 0 cannot prove that it is rank 0."""
    context = zmq.Context()
    stranger = context.socket(zmq.ROUTER)
    stranger.curve_server = True
    stranger.curve_secretkey = STRANGER[1]
    port = stranger.bind_to_random_port("tcp://127.0.0.1")
    job = virtual.tcp_memberships(port, 2)[1:]
    with pytest.raises(LaunchError, match="rejects this process"):
        virtual.run(1, lambda group: None, job=job)
    assert not stranger.poll(0)
    context.destroy(linger=0)


RUNNING = """
import os, time
from toolkit import comm
comm.exchange(comm.world(), "all are here")
print("pid", os.getpid(), flush=True)
time.sleep(20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_other_accounts_cannot_see_the_secret_of_a_job(tmp_path):
    command = ranks.toolkit_command(tmp_path, 2, RUNNING)
    environment = ranks.environment_of()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True
    ) as job:
        pids = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
        variables = Path(f"/proc/{pids[0]}/environ").read_bytes().split(b"\0")
        (folder,) = [v[12:] for v in variables if v.startswith(b"TOOLKIT_JOB=")]
        secret_file = Path(os.fsdecode(folder), "secret")
        secret = secret_file.read_bytes()
        modes = [
            path.stat().st_mode & 0o777 for path in (secret_file.parent, secret_file)
        ]
        for pid in (job.pid, *pids):
            for name in ("cmdline", "environ"):
                content = Path(f"/proc/{pid}/{name}").read_bytes()
                assert secret not in content and secret.hex().encode() not in content
        job.terminate()
    assert modes == [0o700, 0o600]
    assert not secret_file.parent.exists()
