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
from toolkit.serving.http import MAX_HEAD, RequestHead, parse_head, serialize_response
from toolkit.serving.limits import check_seconds
from toolkit.serving.messages import Request, RequestError, Response
from toolkit.serving.service import Service
from toolkit.serving.signals import Signals
from toolkit.serving.threads import wait_for_first

_log = logging.getLogger("toolkit.serving")

_HEAD_END = b"\r\n\r\n"
# Bytes to read ahead of a request in progress, before reading pauses.
_MAX_READ_AHEAD = 64 * 1024
# Seconds for a client to read the response to an invalid request.
LINGER_SECONDS = 2.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.Protocol):
    """Connection of one client.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.transport: Any = None
        self._chunks: list[bytes] = []  # received data that is not parsed
        self._unparsed_size = 0  # its size in bytes
        self._head: RequestHead | None = None  # of the request whose body is incomplete
        self._reserved_bytes = 0  # counted bytes of a body
        self._item: Item | None = None  # of the request in computation
        self._is_busy = False  # whether a request is in progress
        self._is_closing = False  # close after the response
        self._is_http_1_0 = False  # whether the request uses HTTP/1.0
        self._is_output_full = False  # whether the client does not read responses
        self._is_reading_paused = False
        self.state_start = 0.0  # start time of the current state
        self._last_unsent_time = 0.0  # last time with unsent data

    # --- called by the loop -----------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, or reject it above the limit."""
        self.transport = transport
        self.state_start = self.server.loop.time()
        self.server.connections.add(self)
        if len(self.server.connections) > self.server.limits.connections:
            self._is_closing = True
            error = RequestError(503, "too many connections", ("Retry-After", "1"))
            transport.write(serialize_response(error.response(), is_persistent=False))
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the request, because the client has disconnected; `error` has no
        effect."""
        self.server.remove_connection(self)
        self._release_memory()
        if self._item is not None:
            self._item.cancel()
        self._chunks = []

    def data_received(self, data: bytes) -> None:
        """Handle received data, which can complete a request."""
        if self._is_closing and not self._is_busy:
            return
        if not self._unparsed_size:
            self.state_start = self.server.loop.time()
        self._chunks.append(data)
        self._unparsed_size += len(data)
        if self._is_busy or self._is_output_full:
            if self._unparsed_size > _MAX_READ_AHEAD:
                self._pause()
            return
        if self._head is None or self._reserve_memory(len(data)):
            self._handle_data()

    def eof_received(self) -> bool:
        """Handle the end of input; a half-close looks the same as a disconnect."""
        return False

    def pause_writing(self) -> None:
        """Pause reading and computation, because the client does not read."""
        self._is_output_full = True
        self._pause()

    def resume_writing(self) -> None:
        """Resume after the client reads again."""
        self._is_output_full = False
        if not self._is_busy:
            self.state_start = self.server.loop.time()
            self._resume()
            self._handle_data()

    def _pause(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._is_reading_paused and not self._is_output_full:
            self._is_reading_paused = False
            self.transport.resume_reading()

    # --- requests ---------------------------------------------------------------------

    def _handle_data(self) -> None:
        """Handle received data, request by request."""
        while self._unparsed_size and not (self._is_busy or self._is_output_full):
            if not self._handle_request():
                return

    def _handle_request(self) -> bool:
        """Start to handle one request, if it is complete."""
        head, offset = self._head, 0
        if head is not None and self._unparsed_size < head.length:
            return False
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if head is None:
            # Some clients end a body with an additional empty line.
            start = 2 if data.startswith(b"\r\n") else 0
            end = data.find(_HEAD_END, start)
            try:
                if data.startswith(b"\r\n", start) and start:
                    raise RequestError(400, "expected a request line of HTTP")
                if end > MAX_HEAD or (end < 0 and len(data) > MAX_HEAD):
                    raise RequestError(431, f"expected a head of <= {MAX_HEAD} bytes")
                if end < 0:
                    self._set_unparsed(data)
                    return False
                head = parse_head(data[start:end])
                offset = end + 4
                if len(data) - offset < head.length:
                    self._set_unparsed(data[offset:])
                    self._wait_for_body(head)
                    return False
                self.server.limits.check_lengths(head.length, head.json_length)
            except RequestError as error:
                self._reject(error)
                return False
        end = offset + head.length
        self._head = None
        self._set_unparsed(data[end:])
        self._start_request(head, data[offset:end])
        return True

    def _set_unparsed(self, data: bytes) -> None:
        self._chunks = [data] if data else []
        self._unparsed_size = len(data)

    def _wait_for_body(self, head: RequestHead) -> None:
        """Wait for the rest of a body, if memory is available for it."""
        self.server.limits.check_lengths(head.length, head.json_length)
        self._head = head
        if self._reserve_memory(self._unparsed_size) and head.expects_continue:
            self.transport.write(_CONTINUE)

    def _reserve_memory(self, nbytes: int) -> bool:
        """Count more bytes of a body; return whether they are within the limit."""
        try:
            self.server.reserve_memory(nbytes)
        except RequestError as error:
            self._reject(error)
            return False
        self._reserved_bytes += nbytes
        return True

    def _release_memory(self) -> None:
        if self._reserved_bytes:
            self.server.reserve_memory(-self._reserved_bytes)
            self._reserved_bytes = 0

    def _start_request(self, head: RequestHead, body: bytes) -> None:
        self._is_busy, self._is_http_1_0 = True, head.is_http_1_0
        self._is_closing = self._is_closing or not head.is_persistent
        # If more data of this client is unparsed, other requests can arrive first.
        is_only_request = len(self.server.connections) == 1 and not self._unparsed_size
        fields = head.json_length, head.timeout, is_only_request
        request = Request(head.method, head.path, body, *fields)
        self._item = self.server.service.handle(
            request, self._respond if head.method != "HEAD" else self._respond_to_head
        )

    def _respond_to_head(self, response: Response) -> None:
        self._respond(response, with_body=False)

    def _respond(self, response: Response, with_body: bool = True) -> None:
        """Send the response, then continue with the data received in the meantime."""
        self._item = None
        self._is_busy = False
        self._release_memory()
        if self.transport.is_closing():
            return
        is_closing = self._is_closing or self.server.service.stopping
        self.transport.write(
            serialize_response(response, not is_closing, with_body, self._is_http_1_0)
        )
        self.state_start = self.server.loop.time()
        if is_closing:
            self._linger()
            return
        self._resume()
        if self._unparsed_size:
            # Deferred, because many pipelined requests would recurse deeply.
            self.server.loop.call_soon(self._handle_data)

    def _reject(self, error: RequestError) -> None:
        """Reject an invalid request and close, because the next start is unknown."""
        self.server.service.metrics.count_response(error.status)
        self._release_memory()
        self._head = None
        self.state_start = self.server.loop.time()
        self.transport.write(serialize_response(error.response(), is_persistent=False))
        self._linger()

    def _linger(self) -> None:
        """Shut down the write side; close when the client closes, or after a delay.

        Data received in the meantime is discarded. With an earlier close, the client's
        system could discard the response.
        """
        self._is_closing = True
        self._set_unparsed(b"")
        self.transport.write_eof()
        if self._is_reading_paused:  # even for a slow reader: no data is kept
            self._is_reading_paused = False
            self.transport.resume_reading()

    # --- called by the server ---------------------------------------------------------

    def check_time(self, current_time: float) -> None:
        """Close a connection whose client is idle or too slow."""
        limits = self.server.limits
        if self._is_busy:
            return
        if self.transport.get_write_buffer_size():
            self._last_unsent_time = current_time
            if current_time - self.state_start > limits.read_timeout:
                self.transport.abort()
        elif self._is_closing:
            if (
                current_time - max(self.state_start, self._last_unsent_time)
                > LINGER_SECONDS
            ):
                self.transport.abort()
        elif self._unparsed_size or self._head is not None:
            if current_time - self.state_start > limits.read_timeout:
                self._reject(RequestError(408, "the request was not received in time"))
        elif current_time - self.state_start > limits.idle_timeout:
            self.transport.close()

    def close_after_response(self) -> None:
        """Close after the response to the current request."""
        is_idle = not (self._is_busy or self._is_closing)
        self._is_closing = True
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
        self._reserved_bytes = 0
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._abort: asyncio.Event
        service.metrics.connections = lambda: len(self.connections)

    def run(
        self, started: Callable[[Server], None] | None = None, is_last: bool = False
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
        with Signals(self._signal_actions(), is_last) as signals:
            asyncio.run(self._run_until_stopped(started, signals))

    async def serve(self, started: Callable[[Server], None] | None = None) -> None:
        """Run the server in the current event loop; `stop` ends it.

        Args:
            started: a function called when the server is ready; `port` is then the real
                port.
        """
        with Signals(self._signal_actions()) as signals:
            await self._run_until_stopped(started, signals)

    async def _run_until_stopped(
        self, started: Callable[[Server], None] | None, signals: Signals
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop, self._abort = asyncio.Event(), asyncio.Event()
        try:
            signals.begin(self.loop)
            if await wait_for_first(self.service.start(), self._stop.wait()):
                await self._serve(started)
        finally:
            signals.end()

    async def _serve(self, started: Callable[[Server], None] | None) -> None:
        """Listen until `stop`, then finish."""
        listener = await self.loop.create_server(
            partial(Connection, self), self.host, self.port, backlog=1024
        )
        self.port = listener.sockets[0].getsockname()[1]
        tasks = [asyncio.ensure_future(self._close_slow_connections())]
        if self.watch:
            tasks.append(asyncio.ensure_future(self.service.watch(self.watch)))
        try:
            if started is not None:
                started(self)
            await self._stop.wait()
        finally:
            listener.close()
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

    def reserve_memory(self, nbytes: int) -> None:
        """Add to, or subtract from, the total size of bodies in memory.

        Args:
            nbytes: the change in bytes; negative when a body is released.

        Raises:
            RequestError: the total exceeds the limit.
        """
        if nbytes > 0 and self._reserved_bytes + nbytes > self.limits.held:
            raise RequestError(
                503,
                "the requests contain too much data at the same time",
                ("Retry-After", "1"),
            )
        self._reserved_bytes += nbytes

    def remove_connection(self, connection: Connection) -> None:
        """Remove a closed connection.

        Args:
            connection: the connection; a removed one has no effect.
        """
        self.connections.discard(connection)

    def _signal_actions(self) -> dict[str, Callable[[], Any]]:
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

    async def _close_slow_connections(self) -> None:
        """Close slow connections; one timer for all costs a request nothing."""
        period = min(1.0, self.limits.read_timeout / 4, self.limits.idle_timeout / 4)
        while True:
            await asyncio.sleep(period)
            current_time = self.loop.time()
            for connection in list(self.connections):
                connection.check_time(current_time)

    async def _finish(self) -> None:
        """Answer accepted requests, and wait for the transfer or a second stop."""
        for connection in list(self.connections):
            connection.close_after_response()
        await wait_for_first(self._drain(), self._abort.wait())
        for connection in list(self.connections):
            connection.transport.abort()

    async def _drain(self) -> None:
        await self.service.close()
        end = self.loop.time() + self.limits.read_timeout
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.01)
