"""RemoteMonitor: sends the logs of every epoch to a server."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from toolkit.compiler import distribution_context
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.callback import Callback, Logs

_SECONDS = 10  # timeout of a request


class RemoteMonitor(Callback):
    """Callback that posts the epoch and its logs to a web server; failures are ignored.

    Args:
        root: the address of the server, http or https.
        path: the path on the server.
        field: the name of the form field with the JSON text.
        headers: additional headers of the request.
        send_as_json: whether to send a JSON body instead of a form.

    Example:
        >>> from toolkit.callbacks import RemoteMonitor
        >>> callback = RemoteMonitor(root="http://localhost:9000", send_as_json=True)
    """

    def __init__(
        self,
        root: str = "http://localhost:9000",
        path: str = "/publish/epoch/end/",
        field: str = "data",
        headers: dict[str, str] | None = None,
        send_as_json: bool = False,
    ) -> None:
        super().__init__()
        if not root.startswith(("http://", "https://")):
            raise ArgumentError(
                "RemoteMonitor: expected root to be an address with http:// or "
                f"https://; received {root!r}"
            )
        self.root = root
        self.path = path
        self.field = field
        self.headers = headers
        self.send_as_json = send_as_json

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if not distribution_context.is_chief():
            return
        # Import late: it loads HTTP and TLS, which would slow down every start.
        from urllib.parse import urlencode
        from urllib.request import Request, urlopen

        values = {name: _plain(value) for name, value in (logs or {}).items()}
        text = json.dumps({"epoch": epoch, **values})
        kind = "application/json"
        if not self.send_as_json:
            text = urlencode({self.field: text})
            kind = "application/x-www-form-urlencoded"
        headers = {"Content-Type": kind, **(self.headers or {})}
        try:
            request = Request(self.root + self.path, text.encode(), headers)
            urlopen(request, timeout=_SECONDS).close()
        except OSError as error:
            warn(f"RemoteMonitor: could not reach {self.root}: {error}")


def _plain(value: Any) -> Any:
    """Return a value that JSON supports."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
