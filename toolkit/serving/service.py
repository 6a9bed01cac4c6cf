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
from toolkit.serving.protocol import Version
from toolkit.serving.servable import Servable
from toolkit.serving.threads import in_thread

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
        self.version: Version | None = None
        self.batcher: Batcher | None = None
        self.opened: tuple[int, ...] | None = None  # state of the file at that time
        metrics.queue_length = lambda: self.batcher.waiting if self.batcher else 0
        metrics.version = lambda: self.version.number if self.version else 0

    def open(self) -> Servable:
        """Return a warm servable; it is slow, so call it in another thread."""
        self.opened = _state_of(self.source)
        servable = open_servable(self.source, self.batching, self.custom_objects)
        servable.warm()
        return servable

    def use(
        self, servable: Servable, loop: asyncio.AbstractEventLoop
    ) -> Batcher | None:
        """Activate a new version; return the previous one, if any."""
        number = self.version.number + 1 if self.version else 1
        before = self.batcher
        self.version = Version(self.name, number, servable, self.limits)
        self.batcher = Batcher(servable, self.batching, self.metrics, loop)
        return before


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
            counted = self.metrics.models[name] = ModelMetrics(name)
            self.models[name] = ServedModel(
                name, source, batching, self.limits, counted, custom_objects or {}
            )
        self._routes: dict[str, dict[str, Handler]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloading: dict[str, asyncio.Lock] = {}
        self._loads: set[asyncio.Task[Any]] = set()  # tasks that load new versions
        self._closes: set[asyncio.Task[Any]] = set()  # tasks that close old versions

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
        opened = [await in_thread(model.open) for model in models]
        for model, servable in zip(models, opened, strict=True):
            model.use(servable, self._loop)
        self._make_routes()

    async def reload(self, name: str) -> bool:
        """Reload a model's file; an invalid file changes nothing.

        The new version is loaded and warm before its activation. The previous version
        completes its accepted requests.

        Returns:
            Whether there is a new version.
        """
        model = self.models[name]
        if not isinstance(model.source, (str, os.PathLike)):
            return False
        lock = self._reloading.setdefault(name, asyncio.Lock())
        async with lock:
            try:
                servable = await in_thread(model.open)
                self._check_same(model, servable)
            except (ToolkitError, OSError, MemoryError) as error:
                model.metrics.reloads["failure"] += 1
                _log.error("%s: kept, for its new file cannot be used: %s", name, error)
                return False
            except Exception as error:  # a corrupt file can raise any error
                model.metrics.reloads["failure"] += 1
                _log.error("%s: kept, for its new file fails", name, exc_info=error)
                return False
            if self.stopping or self._loop is None:
                return False
            before = model.use(servable, self._loop)
            self._make_routes()
            model.metrics.reloads["success"] += 1
            _log.info("%s: version %d answers", name, model.metrics.version())
        if before is not None:
            _begin(before.close(), self._closes)
        return True

    def begin_reload(self, name: str) -> None:
        """Start `reload` in the background."""
        _begin(self.reload(name), self._loads)

    async def watch(self, seconds: float) -> None:
        """Reload models whose files change, after the change is complete.

        Args:
            seconds: the seconds between checks.
        """
        seen = {name: model.opened for name, model in self.models.items()}
        while True:
            await asyncio.sleep(seconds)
            for name, model in self.models.items():
                now = _state_of(model.source)
                if now is not None and now == seen[name] != model.opened:
                    await self.reload(name)
                seen[name] = now

    def _check_same(self, model: ServedModel, servable: Servable) -> None:
        """Log a warning if a new version has other input or output tensors."""
        old = model.version.servable if model.version else servable
        if (old.inputs, old.outputs) != (servable.inputs, servable.outputs):
            _log.warning("%s: the new file has other inputs or outputs", model.name)

    async def close(self) -> None:
        """Reject new requests, and compute the accepted ones.

        This takes little longer than the request timeout. Loads in progress are
        cancelled.
        """
        self.stopping = True
        for task in self._loads:
            task.cancel()
        batchers = [m.batcher for m in self.models.values() if m.batcher is not None]
        await asyncio.gather(*(batcher.close() for batcher in batchers))
        if self._closes:
            seconds = max(m.batching.timeout for m in self.models.values())
            await asyncio.wait(self._closes, timeout=seconds)

    # --- routes -----------------------------------------------------------------------

    def _make_routes(self) -> None:
        """Create the table of path -> method -> handler."""
        routes: dict[str, dict[str, Handler]] = {
            "/v2": {"GET": self._told(_server_metadata)},
            "/v2/health/live": {"GET": self._told(lambda: _health("live", True))},
            "/v2/health/ready": {
                "GET": self._told(lambda: _health("ready", self.is_ready))
            },
            "/metrics": {
                "GET": self._told(lambda: Response(200, self.metrics.text(), TEXT))
            },
        }
        for model in self.models.values():
            version = model.version
            if version is None:
                continue
            for end in ("", f"/versions/{version.number}"):
                routes |= self._routes_of(model, version, end)
        self._routes = routes

    def _routes_of(
        self, model: ServedModel, version: Version, end: str
    ) -> dict[str, dict[str, Handler]]:
        name, number, servable = version.name, version.number, version.servable
        v1, v2 = f"/v1/models/{name}{end}", f"/v2/models/{name}{end}"
        described = json_response(protocol.model_metadata(name, number, servable))
        signature = json_response(predict.metadata(name, number, servable))
        return {
            v2: {"GET": self._told(lambda: described)},
            f"{v2}/ready": {
                "GET": self._told(lambda: _health("ready", not self.stopping, name))
            },
            f"{v2}/infer": {"POST": self._inference(model, version.read)},
            v1: {
                "GET": self._told(
                    lambda: json_response(predict.status(number, not self.stopping))
                )
            },
            f"{v1}/metadata": {"GET": self._told(lambda: signature)},
            f"{v1}:predict": {
                "POST": self._inference(
                    model, lambda x: _predict(servable, x, self.limits)
                )
            },
        }

    def _told(self, make: Callable[[], Response]) -> Handler:
        """Return a handler that responds at once."""

        def handle(request: Request, respond: Respond) -> None:
            try:
                response = make()
            except Exception as error:
                response = _failed(error).response()
            self.metrics.answered(response.status)
            respond(response)

        return handle

    def _inference(
        self, model: ServedModel, read: Callable[[Request], tuple[Any, list[Any]]]
    ) -> Handler:
        """Return a handler that runs inference."""
        answered, limits = model.metrics.answered, self.limits
        # The version of this path; another version can be active later.
        batcher = model.batcher
        assert batcher is not None

        def handle(request: Request, respond: Respond) -> Item | None:
            start = perf_counter()

            def finish(result: Any) -> None:
                if type(result) is list:
                    response = _encoded(plan, result)
                else:
                    response = result.response()
                answered(response.status, perf_counter() - start)
                respond(response)

            try:
                if self.stopping:
                    raise RequestError(503, "the server stops", ("Retry-After", "1"))
                limits.check_lengths(len(request.body), request.json_length)
                plan, arrays = read(request)
                seconds = _least(plan.seconds, request.timeout)
                item = Item(arrays, plan.rows, seconds, finish, limits.answer)
                batcher.add(item)
            except RequestError as error:
                finish(error)
                return None
            except Exception as error:
                finish(_failed(error))
                return None
            batcher.begin(request.is_alone)
            return None if item.done is None else item

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
        self.metrics.answered(error.status)
        respond(error.response())
        return None


def _begin(work: Coroutine[Any, Any, Any], tasks: set[asyncio.Task[Any]]) -> None:
    """Run a coroutine in the background; it is in `tasks` until it ends."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _failed(error: Exception) -> RequestError:
    """Return the response for an internal error."""
    _log.error("a request could not be read or answered", exc_info=error)
    return RequestError(500, "the request could not be answered")


def _state_of(source: Any) -> tuple[int, ...] | None:
    """Return the state of a file, which changes with it, or None."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    try:
        found = os.stat(source)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _encoded(plan: Any, outputs: list[Any]) -> Response:
    """Return the response; an error affects only this request of the batch."""
    try:
        response: Response = plan.response(outputs)
    except Exception as error:
        _log.error("an answer could not be written", exc_info=error)
        response = RequestError(500, "the answer could not be written").response()
    return response


def _predict(
    servable: Servable, request: Request, limits: Limits
) -> tuple[Any, list[Any]]:
    found = predict.Prediction(servable, request, limits)
    return found, found.arrays


def _least(own: float | None, given: float | None) -> float | None:
    if own is None or given is None:
        return given if own is None else own
    return min(own, given)


def _server_metadata() -> Response:
    told = {"name": "toolkit", "version": toolkit.version()}
    return json_response({**told, "extensions": ["binary_tensor_data"]})


def _health(what: str, is_well: bool, name: str | None = None) -> Response:
    named = {} if name is None else {"name": name}
    return json_response({**named, what: is_well}, 200 if is_well else 503)
