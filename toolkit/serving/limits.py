"""Resource limits for clients, and checks of option values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from toolkit import dtypes
from toolkit.errors import ArgumentError
from toolkit.serving.messages import RequestError
from toolkit.serving.servable import Servable
from toolkit.serving.tensors import TensorSpec

# Bytes per number during JSON encoding: list slot, object and text.
_JSON_VALUE_BYTES = 48


@dataclass(frozen=True)
class Limits:
    """Limits for each client and for all clients.

    Args:
        body: the maximum size of a request body in bytes.
        json: the maximum size of its JSON part in bytes; other clients wait while it is
            parsed.
        rows: the maximum number of rows in a request.
        answer: the maximum size of a request's outputs in bytes; a number in JSON
            counts 48 more.
        held: the maximum total size of all bodies in memory in bytes.
        connections: the maximum number of open connections.
        read_timeout: the seconds to receive a head, and to receive a body.
        idle_timeout: the seconds that an idle connection stays open.

    Raises:
        ArgumentError: a value is not a positive number of the correct type.

    Example:
        >>> from toolkit import serving
        >>> limits = serving.Limits(body=2**20, rows=1000)
        >>> limits.check_lengths(2**21, 100)
        Traceback (most recent call last):
        ...
        toolkit.serving.messages.RequestError: expected a body of <= 1048576 bytes
    """

    body: int = 64 * 2**20
    json: int = 8 * 2**20
    rows: int = 2**20
    answer: int = 256 * 2**20
    held: int = 512 * 2**20
    connections: int = 1024
    read_timeout: float = 30.0
    idle_timeout: float = 75.0

    def __post_init__(self) -> None:
        for name in ("body", "json", "rows", "answer", "held", "connections"):
            check_count("Limits", name, getattr(self, name), 1)
        for name in ("read_timeout", "idle_timeout"):
            check_seconds("Limits", name, getattr(self, name))

    def check_lengths(self, length: int, json_length: int | None) -> None:
        """Raise an error for a body or JSON part that is too long.

        Args:
            length: the size of the body in bytes.
            json_length: the size of its JSON part in bytes; None means the full body.

        Raises:
            RequestError: the message has the limit.
        """
        if length > self.body:
            raise RequestError(413, f"expected a body of <= {self.body} bytes")
        if (length if json_length is None else json_length) > self.json:
            raise RequestError(
                413, f"expected <= {self.json} bytes of JSON; tensors may be binary"
            )

    def check_rows(
        self, servable: Servable, rows: int, json_outputs: Collection[int]
    ) -> None:
        """Raise an error for a request that exceeds the compute limits.

        Args:
            servable: the servable.
            rows: the number of rows.
            json_outputs: the indices of the outputs that are sent as JSON.

        Raises:
            RequestError: the message has the limit.
        """
        allowed_rows = servable.allowed_rows
        if allowed_rows is not None and rows not in allowed_rows:
            numbers = " or ".join(map(str, allowed_rows))
            raise RequestError(400, f"expected {numbers} rows; received {rows}")
        if rows > self.rows:
            raise RequestError(413, f"expected <= {self.rows} rows; received {rows}")
        nbytes = rows * sum(
            _row_bytes(spec, i in json_outputs)
            for i, spec in enumerate(servable.outputs)
        )
        if nbytes > self.answer:
            raise RequestError(
                413,
                f"expected a response of <= {self.answer} bytes; the response to "
                f"{rows} rows needs {nbytes}",
            )


def _row_bytes(spec: TensorSpec, is_json: bool) -> int:
    """Return the minimum size of an output row."""
    size = 1 if spec.dtype == dtypes.STRING else dtypes.numpy_dtype(spec.dtype).itemsize
    count = prod(n for n in spec.shape[1:] if n is not None)
    return count * (size + _JSON_VALUE_BYTES * is_json)


def check_count(owner: str, name: str, value: object, minimum: int) -> None:
    """Raise an error unless the value is an integer of at least `minimum`.

    Raises:
        ArgumentError: the message has the name of the option.
    """
    if type(value) is not int or value < minimum:
        raise ArgumentError(
            f"{owner}: {name}: expected an integer >= {minimum}; received {value!r}"
        )


def check_seconds(owner: str, name: str, value: Any, or_zero: bool = False) -> None:
    """Raise an error unless the value is a positive number of seconds, or 0 if allowed.

    Raises:
        ArgumentError: the message has the name of the option.
    """
    is_number = type(value) in (int, float) and isfinite(value)
    if not is_number or value < 0 or not (value or or_zero):
        raise ArgumentError(
            f"{owner}: {name}: expected seconds {'>= 0' if or_zero else '> 0'}; "
            f"received {value!r}"
        )
