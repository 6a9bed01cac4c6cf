"""Requests, responses and request errors, common to both servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from reprlib import Repr
from typing import Any, NamedTuple

JSON = "application/json"
OCTETS = "application/octet-stream"
TEXT = "text/plain; version=0.0.4; charset=utf-8"

MAX_DEPTH = 8  # nesting depth of lists and objects


class RequestError(Exception):
    """Error of a request; its text is sent to the client."""

    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers

    def response(self) -> Response:
        """Return the error response."""
        return json_response({"error": str(self)}, self.status, self.headers)


class Request(NamedTuple):
    """Request received by a server.

    json_length: the size of the JSON part of the body, if binary tensors follow it.
    timeout: the seconds that the client waits for the response.
    is_only_request: whether no other request can join its batch.
    """

    method: str
    path: str
    body: bytes = b""
    json_length: int | None = None
    timeout: float | None = None
    is_only_request: bool = False


class Response(NamedTuple):
    """Response to send; `json_length` is as in a Request."""

    status: int
    body: bytes
    content_type: str = JSON
    json_length: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


# Callback for the response, called once in the thread of the event loop.
Respond = Callable[[Response], None]


def json_response(
    value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """Return a response with a value as JSON."""
    return Response(status, json_bytes(value), headers=headers)


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON; non-finite numbers use Python's names."""
    return json.dumps(value, separators=(",", ":")).encode()


def read_json(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises:
        RequestError: the body is not an object, or is nested too deeply.
    """
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        _check_depth(text)
    try:
        value = json.loads(text)
    # A number with too many digits raises a plain ValueError.
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "the body is not valid JSON") from error
    if type(value) is not dict:
        raise RequestError(400, "expected a JSON object as the body")
    return value


def format_value(value: object) -> str:
    """Return a short form of a client's value for error messages."""
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlist = _SHORT.maxdict = 9
_SHORT.maxlevel = 3


def _check_depth(text: bytes) -> None:
    """Raise an error for deep nesting, before the parser recurses."""
    # Without escapes, every second piece between quotes is a string.
    segments = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    depth = 0
    for segment in segments[::2]:
        # Only brackets remain.
        for bracket in segment.translate(None, _NO_BRACKETS):
            if bracket in b"[{":
                depth += 1
                if depth > MAX_DEPTH:
                    raise RequestError(
                        400, f"the JSON is nested more than {MAX_DEPTH} levels deep"
                    )
            else:
                depth -= 1


_NO_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
