"""HTTP/1.1 parser and serializer: request heads and response heads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from toolkit.serving.messages import RequestError, Response

MAX_HEAD = 16 * 1024
_TARGET = re.compile(rb"[!-~]+")
_ABSOLUTE_TARGET = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_DIGITS = re.compile(rb"[0-9]{1,15}")
_SECONDS = re.compile(rb"[0-9]{1,9}(\.[0-9]{1,9})?")
_METHODS = {b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"}


class RequestHead(NamedTuple):
    """Parsed head of a request.

    length: the size of the body in bytes.
    json_length, timeout: as in a `messages.Request`.
    is_persistent: whether the client requests a persistent connection.
    expects_continue: whether the client sent `Expect: 100-continue`.
    is_http_1_0: whether it uses HTTP/1.0, which needs an explicit keep-alive.
    """

    method: str
    path: str
    length: int
    json_length: int | None
    timeout: float | None
    is_persistent: bool
    expects_continue: bool
    is_http_1_0: bool


# Most clients repeat the same head.
@lru_cache(512)
def parse_head(head: bytes) -> RequestHead:
    """Parse the head of a request, without the empty line at its end.

    Raises:
        RequestError: the head is invalid or uses an unsupported feature.
    """
    line, *lines = head.split(b"\r\n")
    method, path, is_http_1_0 = _parse_request_line(line)
    pairs = [_parse_field(line) for line in lines]
    hosts = sum(name == b"host" for name, _ in pairs)
    if hosts > 1 or not (hosts or is_http_1_0):
        raise RequestError(400, "expected one Host header")
    fields = join_fields(pairs)
    if b"transfer-encoding" in fields:
        raise RequestError(411, "expected a Content-Length, no Transfer-Encoding")
    json_length, timeout = parse_body_fields(fields)
    expectation = fields.get(b"expect")
    if expectation is not None and expectation.lower() != b"100-continue":
        raise RequestError(417, "expected 100-continue as Expect header")
    options = {x.strip().lower() for x in fields.get(b"connection", b"").split(b",")}
    length = _parse_number(fields, b"content-length")
    if length is None and method == "POST":
        raise RequestError(411, "expected a Content-Length")
    return RequestHead(
        method,
        path,
        length or 0,
        json_length,
        timeout,
        b"keep-alive" in options if is_http_1_0 else b"close" not in options,
        expectation is not None,
        is_http_1_0,
    )


def _parse_request_line(line: bytes) -> tuple[str, str, bool]:
    """Return the method, the path, and whether the version is HTTP/1.0."""
    tokens = line.split(b" ")
    if len(tokens) != 3 or not _TARGET.fullmatch(tokens[1]):
        raise RequestError(400, "expected a request line of HTTP")
    method, target, version = tokens
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        is_http = re.fullmatch(rb"HTTP/[0-9](\.[0-9])?", version)
        raise RequestError(505 if is_http else 400, "expected HTTP/1.1")
    if method not in _METHODS:
        raise RequestError(501 if _TOKEN.fullmatch(method) else 400, "unknown method")
    if absolute := _ABSOLUTE_TARGET.match(target):
        target = target[absolute.end() :]
        target = target if target.startswith(b"/") else b"/" + target
    elif not target.startswith(b"/") and target != b"*":
        raise RequestError(400, "expected a path as the target")
    return method.decode(), target.decode(), version == b"HTTP/1.0"


def _parse_field(line: bytes) -> tuple[bytes, bytes]:
    """Return the lower-case name and the value of a header field."""
    name, colon, value = line.partition(b":")
    # A space before the colon, or a folded line, is ambiguous.
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise RequestError(400, "expected lines of 'Name: value' as headers")
    return name.lower(), value.strip(b" \t")


def join_fields(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return header fields by lower-case name, with repeated fields joined."""
    fields: dict[bytes, bytes] = {}
    for name, value in pairs:
        fields[name] = fields[name] + b"," + value if name in fields else value
    return fields


def parse_body_fields(fields: Mapping[bytes, bytes]) -> tuple[int | None, float | None]:
    """Return the `json_length` and `timeout` of a Request from its header fields.

    Raises:
        RequestError: a value is invalid, or the body is compressed.
    """
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestError(415, "expected a body without Content-Encoding")
    timeout = fields.get(b"request-timeout")
    if timeout is not None and not (_SECONDS.fullmatch(timeout) and float(timeout)):
        raise RequestError(400, "Request-Timeout: expected seconds > 0")
    json_length = _parse_number(fields, b"inference-header-content-length")
    return json_length, None if timeout is None else float(timeout)


def _parse_number(fields: Mapping[bytes, bytes], name: bytes) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not _DIGITS.fullmatch(value):
        raise RequestError(400, f"{name.decode()}: expected one number")
    return int(value)


@lru_cache(512)
def _response_head(
    status: int,
    content_type: str,
    json_length: int | None,
    connection: str | None,
    *headers: str,
) -> bytes:
    """Return a response head without its length."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines.append(f"Content-Type: {content_type}")
    if json_length is not None:
        lines.append(f"Inference-Header-Content-Length: {json_length}")
    lines += headers
    if connection is not None:
        lines.append(f"Connection: {connection}")
    return "\r\n".join([*lines, "Content-Length: "]).encode()


def serialize_response(
    response: Response,
    is_persistent: bool,
    with_body: bool = True,
    is_http_1_0: bool = False,
) -> bytes:
    """Serialize a response.

    Args:
        response: the response.
        is_persistent: whether the connection stays open.
        with_body: False for the response to HEAD.
        is_http_1_0: whether the request used HTTP/1.0.
    """
    status, body, content_type, json_length, headers = response
    header_lines = [f"{name}: {value}" for name, value in headers] if headers else ()
    connection = ("keep-alive" if is_http_1_0 else None) if is_persistent else "close"
    head = _response_head(status, content_type, json_length, connection, *header_lines)
    return b"%b%d\r\n\r\n%b" % (head, len(body), body if with_body else b"")
