"""What clients may take of a server, and checks of the options that say so."""

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

# Bytes that a number takes on its way to JSON: in a list, as an object, and as text.
_JSON_VALUE = 48


@dataclass(frozen=True)
class Limits:
    """What one client, and all of them, may take.

    Args:
        body: bytes of the body of a request.
        json: bytes of JSON in it; to read them, other clients wait.
        rows: that a request has.
        answer: bytes of all outputs of a request; a number in JSON takes 48 more.
        held: bytes of all bodies that are read or worked on at a time.
        connections: that are open at a time.
        read_timeout: seconds for a head to come whole, and for a body.
        idle_timeout: seconds that a connection without a request stays open.

    Raises:
        ArgumentError: one of them is no such number, or not above 0.
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
        """Refuse a body that is too long, of which so much is JSON; None: all.

        Raises:
            RequestError: it says what was expected.
        """
        if length > self.body:
            raise RequestError(413, f"expected a body of <= {self.body} bytes")
        if (length if json_length is None else json_length) > self.json:
            raise RequestError(
                413, f"expected <= {self.json} bytes of JSON; tensors may be binary"
            )

    def check_rows(
        self, servable: Servable, rows: int, in_json: Collection[int]
    ) -> None:
        """Refuse a request that would compute too much.

        Args:
            servable: what computes it.
            rows: that it has.
            in_json: the numbers of the outputs that are sent as JSON.

        Raises:
            RequestError: it says what was expected.
        """
        allowed = servable.allowed_rows
        if allowed is not None and rows not in allowed:
            numbers = " or ".join(map(str, allowed))
            raise RequestError(400, f"expected {numbers} rows; received {rows}")
        if rows > self.rows:
            raise RequestError(413, f"expected <= {self.rows} rows; received {rows}")
        nbytes = rows * sum(
            _row_bytes(spec, i in in_json) for i, spec in enumerate(servable.outputs)
        )
        if nbytes > self.answer:
            raise RequestError(
                413,
                f"expected an answer of <= {self.answer} bytes; that to {rows} rows "
                f"takes {nbytes}",
            )


def _row_bytes(spec: TensorSpec, in_json: bool) -> int:
    """The least that a row of an output takes."""
    size = 1 if spec.dtype == dtypes.STRING else dtypes.numpy_dtype(spec.dtype).itemsize
    count = prod(n for n in spec.shape[1:] if n is not None)
    return count * (size + _JSON_VALUE * in_json)


def check_count(owner: str, name: str, value: Any, least: int) -> None:
    """Refuse what is no integer, or too small.

    Raises:
        ArgumentError: it names the option.
    """
    if type(value) is not int or value < least:
        raise ArgumentError(
            f"{owner}: {name}: expected an integer >= {least}; received {value!r}"
        )


def check_seconds(owner: str, name: str, value: Any, or_zero: bool = False) -> None:
    """Refuse what is no number of seconds, or not above 0.

    Raises:
        ArgumentError: it names the option.
    """
    is_number = type(value) in (int, float) and isfinite(value)
    if not is_number or value < 0 or not (value or or_zero):
        raise ArgumentError(
            f"{owner}: {name}: expected seconds {'>= 0' if or_zero else '> 0'}; "
            f"received {value!r}"
        )
