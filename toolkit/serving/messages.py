"""Requests and responses, as both servers pass them on; and what refuses a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from reprlib import Repr
from typing import Any, NamedTuple

JSON = "application/json"
OCTETS = "application/octet-stream"
TEXT = "text/plain; version=0.0.4; charset=utf-8"

MAX_DEPTH = 8  # of lists and objects inside of each other


class RequestError(Exception):
    """A request that is not answered as it asks; the text goes to the client."""

    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers

    def response(self) -> Response:
        """The answer that tells it."""
        return json_response({"error": str(self)}, self.status, self.headers)


class Request(NamedTuple):
    """What a server has read.

    json_length: how much of the body is JSON, where tensors follow in binary form.
    timeout: seconds that the client waits for the answer.
    is_alone: whether no other request can come with it, to be computed together.
    """

    method: str
    path: str
    body: bytes = b""
    json_length: int | None = None
    timeout: float | None = None
    is_alone: bool = False


class Response(NamedTuple):
    """What a server is to send; `json_length` is as in a Request."""

    status: int
    body: bytes
    content_type: str = JSON
    json_length: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


# Called with the response to a request, once, in the thread of the server's loop.
Respond = Callable[[Response], None]


def json_response(
    value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """A response whose body is a value as JSON."""
    return Response(status, json_bytes(value), headers=headers)


def json_bytes(value: Any) -> bytes:
    """A value as JSON; numbers that are not finite are written as Python reads them."""
    return json.dumps(value, separators=(",", ":")).encode()


def read_json(text: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        RequestError: it is none, or is nested too deep.
    """
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        _check_depth(text)
    try:
        value = json.loads(text)
    # A number may have too many digits, which is a plain ValueError.
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "the body is not valid JSON") from error
    if type(value) is not dict:
        raise RequestError(400, "expected a JSON object as the body")
    return value


def shown(value: Any) -> str:
    """A value that a client has sent, as short as an error may repeat it."""
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlist = _SHORT.maxdict = 9
_SHORT.maxlevel = 3


def _check_depth(text: bytes) -> None:
    """Refuse what is nested too deep, before a parser recurses into it."""
    # Where nothing is escaped, every second piece between quotes is a string.
    pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    depth = 0
    for piece in pieces[::2]:
        # The least that is left when brackets are all that counts.
        for sign in piece.translate(None, _NO_BRACKETS):
            if sign in b"[{":
                depth += 1
                if depth > MAX_DEPTH:
                    raise RequestError(
                        400, f"the JSON is nested more than {MAX_DEPTH} levels deep"
                    )
            else:
                depth -= 1


_NO_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
