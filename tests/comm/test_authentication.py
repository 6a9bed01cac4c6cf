"""Tests of unknown peers that connect to a process of a job or of a cluster."""

import resource
import secrets
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from toolkit.comm import authentication
from toolkit.comm.authentication import Acceptor, authenticate
from toolkit.comm.local import single
from toolkit.comm.side_channel import PROCESS_ENDED, SideChannel
from toolkit.errors import CommunicationError

SECRET = b"s" * 32


class Echo:
    """A server that returns the bytes of a connection that passed authentication."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = self.listener.getsockname()
        self.gate = Acceptor(self.listener, SECRET)
        self.passed = 0
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection = self.gate.accept()
            except OSError:
                return
            with connection:
                self.passed += 1
                connection.sendall(connection.recv(100))

    def send_request(self, secret=SECRET):
        with socket.create_connection(self.address, 5.0) as connection:
            authenticate(connection, secret, 5.0)
            connection.sendall(b"hello")
            return connection.recv(100)

    def close(self):
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.gate.close()


@pytest.fixture
def echo():
    echo = Echo()
    yield echo
    echo.close()


def test_process_with_the_secret_is_accepted(echo):
    assert [echo.send_request(), echo.send_request()] == [b"hello", b"hello"]


@pytest.mark.parametrize("secret", [b"", b"t" * 32, SECRET + b"s"])
def test_other_secret_is_refused_on_both_sides(echo, secret):
    with pytest.raises(CommunicationError, match="have different secrets"):
        echo.send_request(secret)
    assert echo.passed == 0 and echo.send_request() == b"hello"


def test_listener_without_the_secret_receives_nothing():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pretend():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(secrets.token_bytes(32))
                connection.recv(64)
                connection.sendall(secrets.token_bytes(32))

        thread = threading.Thread(target=pretend)
        thread.start()
        with socket.create_connection(listener.getsockname(), 5.0) as connection:
            with pytest.raises(CommunicationError, match="different secrets"):
                authenticate(connection, SECRET, 5.0)
        thread.join()


GARBAGE = {
    "brackets": b"[" * 500_000,
    "zeros": bytes(500_000),
    "random": secrets.token_bytes(500_000),
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
    "a question": b'{"ask": "status", "group": "world", "secret": "x"}\n',
    "a message": b"TKT1\xff\xff\xff\x03{",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_invalid_data_of_unknown_peers_is_ignored(echo, kind):
    for _ in range(3):
        with socket.create_connection(echo.address, 5.0) as stranger:
            with suppress(OSError):
                stranger.sendall(GARBAGE[kind])
    assert echo.send_request() == b"hello"
    assert echo.passed == 1


def test_slow_unknown_peers_delay_no_connection(echo):
    with ExitStack() as stack:
        for _ in range(40):
            stranger = stack.enter_context(socket.create_connection(echo.address, 5.0))
            stranger.sendall(b"x")
        start = time.monotonic()
        assert echo.send_request() == b"hello"
        assert time.monotonic() - start < authentication.AUTHENTICATION_TIMEOUT


def test_unknown_peers_are_closed_after_a_timeout(echo, monkeypatch):
    monkeypatch.setattr(authentication, "AUTHENTICATION_TIMEOUT", 0.2)
    with socket.create_connection(echo.address, 5.0) as stranger:
        assert len(stranger.recv(100)) == 32
        for _ in range(30):  # one byte at a time does not extend the time limit
            with suppress(OSError):
                stranger.sendall(b"x")
            time.sleep(0.1)
        with pytest.raises((ConnectionError, EOFError)):
            if not stranger.recv(100):
                raise EOFError


def test_oldest_unknown_peer_is_closed_at_the_limit(echo, monkeypatch):
    monkeypatch.setattr(authentication, "MAX_UNAUTHENTICATED", 5)
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(echo.address, 5.0))
        assert echo.send_request() == b"hello"
        assert len(echo.gate._candidates) <= 5


def test_unknown_peers_use_little_memory(echo):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ExitStack() as stack:
        for _ in range(40):
            stranger = stack.enter_context(socket.create_connection(echo.address, 5.0))
            stranger.sendall(GARBAGE["a message"])
        assert echo.send_request() == b"hello"
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 8 << 10  # KB


# --- the side channel -----------------------------------------------------------------


@pytest.fixture
def channel():
    channel = SideChannel(single(), lambda question: {"asked": question})
    yield channel
    channel.close()


@pytest.mark.parametrize("kind", GARBAGE)
def test_side_channel_survives_unknown_peers(channel, kind):
    (address,) = channel.addresses
    for _ in range(3):
        with socket.create_connection((address.host, address.port), 5.0) as stranger:
            with suppress(OSError):
                stranger.sendall(GARBAGE[kind])
    assert channel.send_request(0, {"ask": "x"}, 5.0) == {"asked": {"ask": "x"}}


@pytest.mark.parametrize("line", [b"[" * 500_000 + b"\n", b"x" * (2 << 20), b"\xff\n"])
def test_side_channel_survives_invalid_requests(channel, line):
    (address,) = channel.addresses
    with socket.create_connection((address.host, address.port), 5.0) as rank:
        authenticate(rank, address.secret.encode(), 5.0)
        with suppress(OSError):
            rank.sendall(line)
            assert rank.recv(100) == b""
    assert channel.send_request(0, {"ask": "x"}, 5.0) == {"asked": {"ask": "x"}}


def test_side_channel_with_many_unknown_peers_answers_in_time(channel):
    (address,) = channel.addresses
    with ExitStack() as stack:
        for _ in range(50):
            stranger = socket.create_connection((address.host, address.port), 5.0)
            stack.enter_context(stranger).sendall(b"x")
        assert channel.send_request(0, {"ask": "x"}, 2.0) == {"asked": {"ask": "x"}}


def test_listener_at_the_port_of_a_lost_rank_is_refused(channel):
    channel.close()
    channel._thread.join(10)
    (address,) = channel.addresses
    assert channel.send_request(0, {}) == PROCESS_ENDED
    with socket.create_server((address.host, address.port)) as listener:
        other = Acceptor(listener, SECRET)

        def serve():
            with suppress(OSError):
                other.accept()

        thread = threading.Thread(target=serve)
        thread.start()
        assert channel.send_request(0, {}, 5.0) == PROCESS_ENDED
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
