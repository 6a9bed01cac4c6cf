"""Application for ASGI servers, such as uvicorn, granian and hypercorn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from toolkit.errors import ArgumentError
from toolkit.serving.batching import Batching
from toolkit.serving.http import join_fields, parse_body_fields
from toolkit.serving.limits import Limits, check_count, check_seconds
from toolkit.serving.messages import Request, RequestError, Response
from toolkit.serving.service import Service

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Seconds between checks for a client disconnect.
DISCONNECT_POLL_SECONDS = 0.05


class App:
    """ASGI 3 application that serves models over HTTP.

    Each process forms separate batches. The application does not repeat the limits of
    the ASGI server, such as headers, connections and slow clients.

    Args:
        models: name -> a model, a `Servable`, or the path of a file.
        batching: the batching options.
        max_body: the maximum size of a request body in bytes.
        max_json: the maximum size of its JSON part in bytes; other clients wait while
            it is parsed.
        max_rows: the maximum number of rows in a request.
        max_answer: the maximum total size of a request's outputs in bytes.
        watch: seconds between checks of the models' files; 0 disables them.
        custom_objects: name -> class or function that files can refer to.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> app = toolkit.serving.App({"mnist": model})
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        batching: Batching | None = None,
        max_body: int = Limits.body,
        max_json: int = Limits.json,
        max_rows: int = Limits.rows,
        max_answer: int = Limits.answer,
        watch: float = 0.0,
        custom_objects: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (
            *(("max_body", max_body), ("max_json", max_json)),
            *(("max_rows", max_rows), ("max_answer", max_answer)),
        ):
            check_count("App", name, value, 1)
        check_seconds("App", "watch", watch, or_zero=True)
        limits = Limits(max_body, max_json, max_rows, max_answer)
        self.service = Service(models, batching or Batching(), custom_objects, limits)
        self.watch = watch
        self._start_future: asyncio.Future[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request or the lifespan protocol of ASGI.

        Args:
            scope: the type of the connection, and the head of the request.
            receive: a function that returns the next message of the client.
            send: a function that sends a message to the client.
        """
        if scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._start()
            await self._handle_http(scope, receive, send)
        else:
            raise ArgumentError(
                f"App: expected HTTP; received a scope of type {scope['type']!r}"
            )

    async def _start(self) -> None:
        """Load the models once, because servers can omit the lifespan protocol.

        A client disconnect does not stop the load. The next request retries after a
        failure.
        """
        if self._start_future is None:
            self._start_future = asyncio.ensure_future(self._load())
            self._start_future.add_done_callback(self._reset_after_failure)
        await asyncio.shield(self._start_future)

    async def _load(self) -> None:
        await self.service.start()
        if self.watch:
            self._watch_task = asyncio.ensure_future(self.service.watch(self.watch))

    def _reset_after_failure(self, future: asyncio.Future[None]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._start_future = None

    async def _handle_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._watch_task is not None:
            self._watch_task.cancel()
        await self.service.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _handle_http(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            request = await self._read_request(scope, receive)
        except RequestError as error:
            self.service.metrics.count_response(error.status)
            await _send(send, error.response(), scope["method"])
            return
        if request is None:
            return
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        item = self.service.handle(request, future.set_result)
        if item is not None:
            await asyncio.wait((future,), timeout=DISCONNECT_POLL_SECONDS)
            if not future.done() and await _has_disconnected(future, receive):
                item.cancel()
                return
        await _send(send, future.result(), request.method)

    async def _read_request(self, scope: Message, receive: Receive) -> Request | None:
        """Return the request, or None if the client disconnects before its end."""
        json_length, timeout = parse_body_fields(join_fields(scope["headers"]))
        limits = self.service.limits
        chunks, size, is_complete = [], 0, False
        while not is_complete:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            limits.check_lengths(size, json_length)
            is_complete = not message.get("more_body", False)
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return Request(
            scope["method"], _relative_path(scope), body, json_length, timeout
        )


def _relative_path(scope: Message) -> str:
    """Return the path relative to the mount point, with escapes."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    if root and f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :] or "/"
    return quote(path, safe="/:")


async def _has_disconnected(
    response: asyncio.Future[Response], receive: Receive
) -> bool:
    """Wait for the response; return whether the client disconnected first."""
    message = asyncio.ensure_future(receive())
    await asyncio.wait((response, message), return_when=asyncio.FIRST_COMPLETED)
    if response.done():
        message.cancel()
        return False
    return True


async def _send(send: Send, response: Response, method: str) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
    ]
    if response.json_length is not None:
        length = str(response.json_length).encode()
        headers.append((b"inference-header-content-length", length))
    headers += [(x.lower().encode(), y.encode()) for x, y in response.headers]
    await send(
        {"type": "http.response.start", "status": response.status, "headers": headers}
    )
    body = b"" if method == "HEAD" else response.body
    await send({"type": "http.response.body", "body": body})


def from_environment() -> App:
    """Return the application of the models in TOOLKIT_MODELS, for `--factory`.

    The variable has `name=path` for each model, separated as the folders of PATH.

    Raises:
        ArgumentError: the variable is missing or invalid.
    """
    text = os.environ.get("TOOLKIT_MODELS", "")
    pairs = [pair.partition("=") for pair in text.split(os.pathsep) if pair]
    if not pairs or not all(name and path for name, _, path in pairs):
        raise ArgumentError(
            "serve: expected TOOLKIT_MODELS to be name=path for each model, joined by "
            f"{os.pathsep!r}; received {text!r}"
        )
    return App({name: path for name, _, path in pairs})
