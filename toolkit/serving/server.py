"""Server of `toolkit serve`: plain HTTP/1.1 on asyncio, without other packages.

Each connection has one request in progress; pipelined requests wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from toolkit.serving.batching import Item
from toolkit.serving.http import MAX_HEAD, Head, parse_head, written
from toolkit.serving.limits import check_seconds
from toolkit.serving.messages import Request, RequestError, Response
from toolkit.serving.service import Service
from toolkit.serving.signals import Signals
from toolkit.serving.threads import either

_log = logging.getLogger("toolkit.serving")

_END = b"\r\n\r\n"
# Bytes to read ahead of a request in progress, before reading pauses.
_AHEAD = 64 * 1024
# Seconds for a client to read the response to an invalid request.
LINGER = 2.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.Protocol):
    """Connection of one client.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.transport: Any = None
        self._pieces: list[bytes] = []  # received data that is not parsed
        self._size = 0  # its size in bytes
        self._head: Head | None = None  # of the request whose body is incomplete
        self._held = 0  # counted bytes of a body
        self._item: Item | None = None  # of the request in computation
        self._is_busy = False  # whether a request is in progress
        self._closes = False  # close after the response
        self._is_old = False  # whether the request uses HTTP/1.0
        self._is_full = False  # whether the client does not read responses
        self._is_paused = False
        self.since = 0.0  # start time of the current state
        self._unsent_at = 0.0  # last time with unsent data

    # --- called by the loop -----------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, or reject it above the limit."""
        self.transport = transport
        self.since = self.server.loop.time()
        self.server.connections.add(self)
        if len(self.server.connections) > self.server.limits.connections:
            self._closes = True
            error = RequestError(503, "too many connections", ("Retry-After", "1"))
            transport.write(written(error.response(), keeps=False))
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the request, because the client has disconnected; `error` has no
        effect."""
        self.server.forget(self)
        self._release()
        if self._item is not None:
            self._item.cancel()
        self._pieces = []

    def data_received(self, data: bytes) -> None:
        """Handle received data, which can complete a request."""
        if self._closes and not self._is_busy:
            return
        if not self._size:
            self.since = self.server.loop.time()
        self._pieces.append(data)
        self._size += len(data)
        if self._is_busy or self._is_full:
            if self._size > _AHEAD:
                self._pause()
            return
        if self._head is None or self._hold(len(data)):
            self._read()

    def eof_received(self) -> bool:
        """Handle the end of input; a half-close looks the same as a disconnect."""
        return False

    def pause_writing(self) -> None:
        """Pause reading and computation, because the client does not read."""
        self._is_full = True
        self._pause()

    def resume_writing(self) -> None:
        """Resume after the client reads again."""
        self._is_full = False
        if not self._is_busy:
            self.since = self.server.loop.time()
            self._resume()
            self._read()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self._is_full:
            self._is_paused = False
            self.transport.resume_reading()

    # --- requests ---------------------------------------------------------------------

    def _read(self) -> None:
        """Handle received data, request by request."""
        while self._size and not (self._is_busy or self._is_full):
            if not self._read_one():
                return

    def _read_one(self) -> bool:
        """Start to handle one request, if it is complete."""
        head, at = self._head, 0
        if head is not None and self._size < head.length:
            return False
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if head is None:
            # Some clients end a body with an additional empty line.
            start = 2 if data.startswith(b"\r\n") else 0
            end = data.find(_END, start)
            try:
                if data.startswith(b"\r\n", start) and start:
                    raise RequestError(400, "expected a request line of HTTP")
                if end > MAX_HEAD or (end < 0 and len(data) > MAX_HEAD):
                    raise RequestError(431, f"expected a head of <= {MAX_HEAD} bytes")
                if end < 0:
                    self._keep(data)
                    return False
                head = parse_head(data[start:end])
                at = end + 4
                if len(data) - at < head.length:
                    self._keep(data[at:])
                    self._begin_body(head)
                    return False
                self.server.limits.check_lengths(head.length, head.json_length)
            except RequestError as error:
                self._refuse(error)
                return False
        end = at + head.length
        self._head = None
        self._keep(data[end:])
        self._start(head, data[at:end])
        return True

    def _keep(self, data: bytes) -> None:
        self._pieces = [data] if data else []
        self._size = len(data)

    def _begin_body(self, head: Head) -> None:
        """Wait for the rest of a body, if memory is available for it."""
        self.server.limits.check_lengths(head.length, head.json_length)
        self._head = head
        if self._hold(self._size) and head.expects:
            self.transport.write(_CONTINUE)

    def _hold(self, nbytes: int) -> bool:
        """Count more bytes of a body; return whether they are within the limit."""
        try:
            self.server.hold(nbytes)
        except RequestError as error:
            self._refuse(error)
            return False
        self._held += nbytes
        return True

    def _release(self) -> None:
        if self._held:
            self.server.hold(-self._held)
            self._held = 0

    def _start(self, head: Head, body: bytes) -> None:
        self._is_busy, self._is_old = True, head.is_old
        self._closes = self._closes or not head.keeps
        # If more data of this client is unparsed, other requests can arrive first.
        is_alone = len(self.server.connections) == 1 and not self._size
        about = head.json_length, head.timeout, is_alone
        request = Request(head.method, head.path, body, *about)
        self._item = self.server.service.handle(
            request, self._answer if head.method != "HEAD" else self._answer_head
        )

    def _answer_head(self, response: Response) -> None:
        self._answer(response, with_body=False)

    def _answer(self, response: Response, with_body: bool = True) -> None:
        """Send the response, then continue with the data received in the meantime."""
        self._item = None
        self._is_busy = False
        self._release()
        if self.transport.is_closing():
            return
        closes = self._closes or self.server.service.stopping
        self.transport.write(written(response, not closes, with_body, self._is_old))
        self.since = self.server.loop.time()
        if closes:
            self._linger()
            return
        self._resume()
        if self._size:  # deferred: many pipelined requests would recurse deeply
            self.server.loop.call_soon(self._read)

    def _refuse(self, error: RequestError) -> None:
        """Reject an invalid request and close, because the next start is unknown."""
        self.server.service.metrics.answered(error.status)
        self._release()
        self._head = None
        self.since = self.server.loop.time()
        self.transport.write(written(error.response(), keeps=False))
        self._linger()

    def _linger(self) -> None:
        """Shut down the write side; close when the client closes, or after a delay.

        Data received in the meantime is discarded. With an earlier close, the client's
        system could discard the response.
        """
        self._closes = True
        self._keep(b"")
        self.transport.write_eof()
        if self._is_paused:  # even for a slow reader: no data is kept
            self._is_paused = False
            self.transport.resume_reading()

    # --- called by the server ---------------------------------------------------------

    def check_time(self, now: float) -> None:
        """Close a connection whose client is idle or too slow."""
        limits = self.server.limits
        if self._is_busy:
            return
        if self.transport.get_write_buffer_size():
            self._unsent_at = now
            if now - self.since > limits.read_timeout:
                self.transport.abort()
        elif self._closes:
            if now - max(self.since, self._unsent_at) > LINGER:
                self.transport.abort()
        elif self._size or self._head is not None:
            if now - self.since > limits.read_timeout:
                self._refuse(RequestError(408, "the request did not come in time"))
        elif now - self.since > limits.idle_timeout:
            self.transport.close()

    def close_soon(self) -> None:
        """Close after the response to the current request."""
        is_idle = not (self._is_busy or self._closes)
        self._closes = True
        if is_idle:
            self.transport.close()


class Server:
    """HTTP server of a service.

    Args:
        service: the service.
        host, port: the address; port 0 selects a free port.
        watch: seconds between checks of the models' files; 0 disables them.

    Example:
        >>> import toolkit
        >>> from toolkit.serving.batching import Batching
        >>> from toolkit.serving.service import Service
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> server = toolkit.serving.Server(Service({"m": model}, Batching()))
        >>> server.run()  # doctest: +SKIP
    """

    def __init__(
        self,
        service: Service,
        host: str = "127.0.0.1",
        port: int = 8000,
        watch: float = 0.0,
    ) -> None:
        self.service = service
        self.host, self.port = host, port
        self.limits = service.limits
        check_seconds("Server", "watch", watch, or_zero=True)
        self.watch = watch
        self.connections: set[Connection] = set()
        self._held = 0
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._abort: asyncio.Event
        service.metrics.connections = lambda: len(self.connections)

    def run(
        self,
        started: Callable[[Server], None] | None = None,
        is_last: bool = False,
    ) -> None:
        """Serve until SIGTERM or SIGINT, then answer the accepted requests.

        A second signal stops the server at once, as does the first during the load of
        models.

        Args:
            started: a function called when the server is ready; `port` is then the real
                port.
            is_last: whether the process ends after this; a late signal is then ignored.
        """
        # The handlers are restored after the loop ends: a second signal can arrive
        # before.
        with Signals(self._actions(), is_last) as signals:
            asyncio.run(self._until_stopped(started, signals))

    async def serve(self, started: Callable[[Server], None] | None = None) -> None:
        """Run the server in the current event loop; `stop` ends it."""
        with Signals(self._actions()) as signals:
            await self._until_stopped(started, signals)

    async def _until_stopped(
        self, started: Callable[[Server], None] | None, signals: Signals
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop, self._abort = asyncio.Event(), asyncio.Event()
        try:
            signals.begin(self.loop)
            if await either(self.service.start(), self._stop.wait()):
                await self._serve(started)
        finally:
            signals.end()

    async def _serve(self, started: Callable[[Server], None] | None) -> None:
        """Listen until `stop`, then finish."""
        listening = await self.loop.create_server(
            partial(Connection, self), self.host, self.port, backlog=1024
        )
        self.port = listening.sockets[0].getsockname()[1]
        tasks = [asyncio.ensure_future(self._look_at_connections())]
        if self.watch:
            tasks.append(asyncio.ensure_future(self.service.watch(self.watch)))
        try:
            if started is not None:
                started(self)
            await self._stop.wait()
        finally:
            listening.close()
            await self._finish()
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Reject new requests, and end `serve` when all are answered.

        A second call stops without waiting.
        """
        if self._stop.is_set():
            self._abort.set()
        self._stop.set()

    def hold(self, nbytes: int) -> None:
        """Add to, or subtract from, the total size of bodies in memory.

        Raises:
            RequestError: the total exceeds the limit.
        """
        if nbytes > 0 and self._held + nbytes > self.limits.held:
            raise RequestError(503, "too much is sent at a time", ("Retry-After", "1"))
        self._held += nbytes

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)

    def _actions(self) -> dict[str, Callable[[], Any]]:
        """Return the signal actions: stop on SIGTERM and SIGINT, reload on SIGHUP.

        On Windows, Ctrl-C and Ctrl-Break stop."""
        return {
            **dict.fromkeys(("SIGTERM", "SIGINT", "SIGBREAK"), self.stop),
            "SIGHUP": self._reload_all,
        }

    def _reload_all(self) -> None:
        if self.service.is_ready:  # the initial load is already new
            for name in self.service.models:
                self.service.begin_reload(name)

    async def _look_at_connections(self) -> None:
        """Close slow connections; one timer for all costs a request nothing."""
        period = min(1.0, self.limits.read_timeout / 4, self.limits.idle_timeout / 4)
        while True:
            await asyncio.sleep(period)
            now = self.loop.time()
            for connection in list(self.connections):
                connection.check_time(now)

    async def _finish(self) -> None:
        """Answer accepted requests, and wait for the transfer or a second stop."""
        for connection in list(self.connections):
            connection.close_soon()
        await either(self._drain(), self._abort.wait())
        for connection in list(self.connections):
            connection.transport.abort()

    async def _drain(self) -> None:
        await self.service.close()
        end = self.loop.time() + self.limits.read_timeout
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.01)
