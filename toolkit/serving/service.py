"""Request handling for any server: routes, models and their versions."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import toolkit
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.serving import predict, protocol
from toolkit.serving.batching import Batcher, Batching, Item
from toolkit.serving.limits import Limits
from toolkit.serving.loading import open_servable
from toolkit.serving.messages import (
    TEXT,
    Request,
    RequestError,
    Respond,
    Response,
    json_response,
)
from toolkit.serving.metrics import Metrics, ModelMetrics
from toolkit.serving.protocol import ModelVersion
from toolkit.serving.servable import Servable
from toolkit.serving.threads import run_in_thread

_log = logging.getLogger("toolkit.serving")

# Route handler: a function of the request and the response callback.
Handler = Callable[[Request, Respond], Item | None]


class ServedModel:
    """Named model: its current version, and the source of new ones.

    Args:
        name: the name for clients.
        source: a path, a model or a Servable.
        batching: the batching options.
        limits: the client limits.
        metrics: the metrics of this model.
        custom_objects: the objects that its file can refer to.
    """

    def __init__(
        self,
        name: str,
        source: Any,
        batching: Batching,
        limits: Limits,
        metrics: ModelMetrics,
        custom_objects: Mapping[str, Any],
    ) -> None:
        self.name, self.source = name, source
        self.batching, self.limits, self.metrics = batching, limits, metrics
        self.custom_objects = custom_objects
        self.version: ModelVersion | None = None
        self.batcher: Batcher | None = None
        # State of the file when it was opened.
        self.opened_state: tuple[int, ...] | None = None
        metrics.queue_length = lambda: self.batcher.waiting if self.batcher else 0
        metrics.version = lambda: self.version.number if self.version else 0

    def open(self) -> Servable:
        """Return a warm servable; it is slow, so call it in another thread."""
        self.opened_state = _file_state(self.source)
        servable = open_servable(self.source, self.batching, self.custom_objects)
        servable.warm()
        for note in getattr(servable, "notes", ()):
            _log.info("%s: %s", self.name, note)
        return servable

    def activate(
        self, servable: Servable, loop: asyncio.AbstractEventLoop
    ) -> Batcher | None:
        """Activate a new version; return the previous one, if any."""
        number = self.version.number + 1 if self.version else 1
        previous = self.batcher
        self.version = ModelVersion(self.name, number, servable, self.limits)
        self.batcher = Batcher(servable, self.batching, self.metrics, loop)
        return previous


class Service:
    """Models that answer requests of any server.

    Args:
        models: name -> the path of a file, a model or a Servable.
        batching: the batching options.
        custom_objects: name -> class or function that files can refer to.
        limits: the client limits.

    Attributes:
        metrics: the metrics.
        stopping: whether new requests are rejected.

    Example:
        >>> import asyncio
        >>> from toolkit import layers, serving, Input, Sequential
        >>> model = Sequential([Input((2,)), layers.Dense(1)])
        >>> service = serving.Service({"sums": model}, serving.Batching(size=4))
        >>> asyncio.run(service.start())
        >>> service.is_ready
        True
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        batching: Batching,
        custom_objects: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if not models:
            raise ArgumentError("serve: expected at least one model")
        self.metrics = Metrics()
        self.limits = limits or Limits()
        self.stopping = False
        self.models: dict[str, ServedModel] = {}
        for name, source in models.items():
            if not isinstance(name, str) or not name or "/" in name:
                raise ArgumentError(
                    f"serve: expected a model's name without '/'; received {name!r}"
                )
            model_metrics = self.metrics.models[name] = ModelMetrics(name)
            self.models[name] = ServedModel(
                name, source, batching, self.limits, model_metrics, custom_objects or {}
            )
        self._routes: dict[str, dict[str, Handler]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reload_locks: dict[str, asyncio.Lock] = {}
        # Tasks that load new versions, and tasks that close old versions.
        self._load_tasks: set[asyncio.Task[Any]] = set()
        self._close_tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_ready(self) -> bool:
        """Return whether all models are ready."""
        return not self.stopping and all(m.version for m in self.models.values())

    # --- starting, reloading, stopping ------------------------------------------------

    async def start(self) -> None:
        """Load and warm up all models.

        Raises:
            ToolkitError: a model cannot be served.
        """
        self._loop = asyncio.get_running_loop()
        models = self.models.values()
        servables = [await run_in_thread(model.open) for model in models]
        for model, servable in zip(models, servables, strict=True):
            model.activate(servable, self._loop)
        self._create_routes()

    async def reload(self, name: str) -> bool:
        """Reload a model's file; an invalid file changes nothing.

        The new version is loaded and warm before its activation. The previous version
        completes its accepted requests.

        Args:
            name: the name of the model.

        Returns:
            Whether there is a new version.
        """
        model = self.models[name]
        if not isinstance(model.source, (str, os.PathLike)):
            return False
        lock = self._reload_locks.setdefault(name, asyncio.Lock())
        async with lock:
            try:
                servable = await run_in_thread(model.open)
                self._warn_of_other_tensors(model, servable)
            except (ToolkitError, OSError, MemoryError) as error:
                model.metrics.reloads["failure"] += 1
                _log.error(
                    "%s: the old version stays active, because the new file is "
                    "invalid: %s",
                    name,
                    error,
                )
                return False
            except Exception as error:  # a corrupt file can raise any error
                model.metrics.reloads["failure"] += 1
                _log.error(
                    "%s: the old version stays active, because the new file fails",
                    name,
                    exc_info=error,
                )
                return False
            if self.stopping or self._loop is None:
                return False
            previous = model.activate(servable, self._loop)
            self._create_routes()
            model.metrics.reloads["success"] += 1
            _log.info("%s: version %d is active", name, model.metrics.version())
        if previous is not None:
            _start_task(previous.close(), self._close_tasks)
        return True

    def begin_reload(self, name: str) -> None:
        """Start `reload` in the background.

        Args:
            name: the name of the model.
        """
        _start_task(self.reload(name), self._load_tasks)

    async def watch(self, seconds: float) -> None:
        """Reload models whose files change, after the change is complete.

        Args:
            seconds: the seconds between checks.
        """
        states = {name: model.opened_state for name, model in self.models.items()}
        while True:
            await asyncio.sleep(seconds)
            for name, model in self.models.items():
                state = _file_state(model.source)
                if state is not None and state == states[name] != model.opened_state:
                    await self.reload(name)
                states[name] = state

    def _warn_of_other_tensors(self, model: ServedModel, servable: Servable) -> None:
        """Log a warning if a new version has other input or output tensors."""
        previous = model.version.servable if model.version else servable
        if (previous.inputs, previous.outputs) != (servable.inputs, servable.outputs):
            _log.warning("%s: the new file has other inputs or outputs", model.name)

    async def close(self) -> None:
        """Reject new requests, and compute the accepted ones.

        This takes little longer than the request timeout. Loads in progress are
        cancelled.
        """
        self.stopping = True
        for task in self._load_tasks:
            task.cancel()
        batchers = [m.batcher for m in self.models.values() if m.batcher is not None]
        await asyncio.gather(*(batcher.close() for batcher in batchers))
        if self._close_tasks:
            seconds = max(m.batching.timeout for m in self.models.values())
            await asyncio.wait(self._close_tasks, timeout=seconds)

    # --- routes -----------------------------------------------------------------------

    def _create_routes(self) -> None:
        """Create the table of path -> method -> handler."""
        routes: dict[str, dict[str, Handler]] = {
            "/v2": {"GET": self._immediate_handler(_server_metadata)},
            "/v2/health/live": {
                "GET": self._immediate_handler(lambda: _health_response("live", True))
            },
            "/v2/health/ready": {
                "GET": self._immediate_handler(
                    lambda: _health_response("ready", self.is_ready)
                )
            },
            "/metrics": {
                "GET": self._immediate_handler(
                    lambda: Response(200, self.metrics.text(), TEXT)
                )
            },
        }
        for model in self.models.values():
            version = model.version
            if version is None:
                continue
            for suffix in ("", f"/versions/{version.number}"):
                routes |= self._routes_of(model, version, suffix)
        self._routes = routes

    def _routes_of(
        self, model: ServedModel, version: ModelVersion, suffix: str
    ) -> dict[str, dict[str, Handler]]:
        name, number, servable = version.name, version.number, version.servable
        v1, v2 = f"/v1/models/{name}{suffix}", f"/v2/models/{name}{suffix}"
        model_metadata = json_response(protocol.model_metadata(name, number, servable))
        signature_metadata = json_response(predict.metadata(name, number, servable))
        return {
            v2: {"GET": self._immediate_handler(lambda: model_metadata)},
            f"{v2}/ready": {
                "GET": self._immediate_handler(
                    lambda: _health_response("ready", not self.stopping, name)
                )
            },
            f"{v2}/infer": {
                "POST": self._inference_handler(model, version.parse_request)
            },
            v1: {
                "GET": self._immediate_handler(
                    lambda: json_response(predict.status(number, not self.stopping))
                )
            },
            f"{v1}/metadata": {
                "GET": self._immediate_handler(lambda: signature_metadata)
            },
            f"{v1}:predict": {
                "POST": self._inference_handler(
                    model, lambda x: _parse_prediction(servable, x, self.limits)
                )
            },
        }

    def _immediate_handler(self, create_response: Callable[[], Response]) -> Handler:
        """Return a handler that responds at once."""

        def handle(request: Request, respond: Respond) -> None:
            try:
                response = create_response()
            except Exception as error:
                response = _internal_error(error).response()
            self.metrics.count_response(response.status)
            respond(response)

        return handle

    def _inference_handler(
        self,
        model: ServedModel,
        parse_request: Callable[[Request], tuple[Any, list[Any]]],
    ) -> Handler:
        """Return a handler that runs inference."""
        count_response, limits = model.metrics.count_response, self.limits
        # The version of this path; another version can be active later.
        batcher = model.batcher
        assert batcher is not None

        def handle(request: Request, respond: Respond) -> Item | None:
            start = perf_counter()

            def finish(result: Any) -> None:
                if type(result) is list:
                    response = _create_response(parsed_request, result)
                else:
                    response = result.response()
                count_response(response.status, perf_counter() - start)
                respond(response)

            try:
                if self.stopping:
                    raise RequestError(
                        503, "the server is stopping", ("Retry-After", "1")
                    )
                limits.check_lengths(len(request.body), request.json_length)
                parsed_request, arrays = parse_request(request)
                timeout = _minimum_timeout(parsed_request.timeout, request.timeout)
                item = Item(arrays, parsed_request.rows, timeout, finish, limits.answer)
                batcher.add(item)
            except RequestError as error:
                finish(error)
                return None
            except Exception as error:
                finish(_internal_error(error))
                return None
            batcher.schedule_batches(request.is_only_request)
            return None if item.callback is None else item

        return handle

    def handle(self, request: Request, respond: Respond) -> Item | None:
        """Handle a request, now or later.

        Args:
            request: the request.
            respond: a callback that is called once with the response, possibly before
                the return.

        Returns:
            An item to `cancel` if the client disconnects before the response, or None.
        """
        methods = self._routes.get(request.path)
        route = None if methods is None else methods.get(request.method)
        if route is None:
            return self._handle_fallback(request, respond)
        return route(request, respond)

    def _handle_fallback(self, request: Request, respond: Respond) -> Item | None:
        """Handle escaped paths, queries, other methods and unknown paths."""
        path = unquote(request.path.partition("?")[0])
        if len(path) > 1:
            path = path.removesuffix("/")
        methods = self._routes.get(path)
        if methods is None:
            error = RequestError(404, "there is no such path, model or version")
        elif request.method in methods:
            return methods[request.method](request, respond)
        elif request.method == "HEAD" and "GET" in methods:
            return methods["GET"](request, respond)
        else:
            allowed = ", ".join(methods)
            error = RequestError(
                405, f"expected the method {allowed}", ("Allow", allowed)
            )
        self.metrics.count_response(error.status)
        respond(error.response())
        return None


def _start_task(work: Coroutine[Any, Any, Any], tasks: set[asyncio.Task[Any]]) -> None:
    """Run a coroutine in the background; it is in `tasks` until it ends."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _internal_error(error: Exception) -> RequestError:
    """Return the response for an internal error."""
    _log.error("a request could not be read or answered", exc_info=error)
    return RequestError(500, "the request could not be answered")


def _file_state(source: Any) -> tuple[int, ...] | None:
    """Return the state of a file, which changes with it, or None."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    try:
        status = os.stat(source)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _create_response(parsed_request: Any, outputs: list[Any]) -> Response:
    """Return the response; an error affects only this request of the batch."""
    try:
        response: Response = parsed_request.response(outputs)
    except Exception as error:
        _log.error("a response could not be written", exc_info=error)
        response = RequestError(500, "the response could not be written").response()
    return response


def _parse_prediction(
    servable: Servable, request: Request, limits: Limits
) -> tuple[Any, list[Any]]:
    prediction = predict.Prediction(servable, request, limits)
    return prediction, prediction.arrays


def _minimum_timeout(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def _server_metadata() -> Response:
    metadata = {"name": "toolkit", "version": toolkit.version()}
    return json_response({**metadata, "extensions": ["binary_tensor_data"]})


def _health_response(state: str, is_healthy: bool, name: str | None = None) -> Response:
    fields = {} if name is None else {"name": name}
    return json_response({**fields, state: is_healthy}, 200 if is_healthy else 503)
