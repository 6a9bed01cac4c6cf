"""Open Inference Protocol, version 2, over HTTP, with the binary tensor extension.

Clients repeat the JSON part of a request. A `Plan` caches its meaning and the head of
the response.

Reference: https://github.com/kserve/open-inference-protocol, and Triton's extension
"binary tensor data".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toolkit.serving.limits import Limits
from toolkit.serving.messages import (
    OCTETS,
    Request,
    RequestError,
    Response,
    json_bytes,
    read_json,
    shown,
)
from toolkit.serving.servable import Servable
from toolkit.serving.tensors import (
    TensorSpec,
    from_bytes,
    from_values,
    to_bytes,
    to_values,
)

PLANS = 512  # cached for each version of a model
LARGEST = 2**63 - 1  # maximum of extents and sizes
LONGEST = 4096  # maximum size of a cached JSON part in bytes


def model_metadata(name: str, version: int, servable: Servable) -> dict[str, Any]:
    """Return the response of `GET /v2/models/NAME`."""
    return {
        "name": name,
        "versions": [str(version)],
        "platform": servable.platform,
        "inputs": [_described(spec) for spec in servable.inputs],
        "outputs": [_described(spec) for spec in servable.outputs],
    }


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.dims}


class Plan:
    """Meaning of a request's JSON part: tensor locations and response format.

    Args:
        version: the version of the model.
        value: the JSON object.
        follows: the number of bytes after the JSON; None if binary data is not
            possible.

    Raises:
        RequestError: the object is invalid.

    Attributes:
        rows: the size of the batch axis.
        seconds: the client's timeout; None if unspecified.
    """

    def __init__(
        self, version: Version, value: dict[str, Any], follows: int | None
    ) -> None:
        servable = version.servable
        parameters = _parameters(value)
        for name in ("sequence_id", "sequence_start", "sequence_end"):
            if parameters.get(name):
                raise RequestError(400, f"parameter {name!r}: models keep no sequences")
        self.seconds = _seconds(parameters.get("timeout"))
        self.version = version
        self.id = value.get("id")
        if self.id is not None and not isinstance(self.id, str):
            raise RequestError(400, "id: expected a string")
        given = self._by_name(value, servable, follows)
        # In model order: (spec, shape, array or slice of the body).
        self.tensors: list[tuple[TensorSpec, list[int], Any]] = []
        for spec in servable.inputs:
            if spec.name not in given:
                raise RequestError(400, f"input {spec.name!r} is missing")
            self.tensors.append((spec, *given[spec.name]))
        rows = {shape[0] for _, shape, _ in self.tensors}
        if len(rows) != 1:
            raise RequestError(
                400, f"expected one extent of the first axes; received {sorted(rows)}"
            )
        (self.rows,) = rows
        in_binary = _flag(parameters, "binary_data_output", False)
        self.wanted = _wanted(value.get("outputs"), servable, in_binary)
        in_json = {i for i, _, in_binary in self.wanted if not in_binary}
        version.limits.check_rows(servable, self.rows, in_json)
        # Without inline values, the plan is reusable.
        self.is_kept = all(isinstance(x, slice) for _, _, x in self.tensors)
        self._head: tuple[Any, bytes] | None = None

    def _by_name(
        self, value: dict[str, Any], servable: Servable, follows: int | None
    ) -> dict[str, tuple[list[int], Any]]:
        """Return name -> shape and values (or their location) of each input."""
        specs = {spec.name: spec for spec in servable.inputs}
        inputs = value.get("inputs")
        if not isinstance(inputs, list):
            raise RequestError(400, "inputs: expected a list of tensors")
        given: dict[str, tuple[list[int], Any]] = {}
        at = 0
        for tensor in inputs:
            name = tensor.get("name") if isinstance(tensor, dict) else None
            if not isinstance(name, str) or name not in specs or name in given:
                raise RequestError(
                    400,
                    f"inputs: expected each of {list(specs)} once; received "
                    f"{shown(name)}",
                )
            shape = _checked_shape(specs[name], tensor)
            nbytes = _parameters(tensor).get("binary_data_size")
            if nbytes is None:
                given[name] = shape, _values(specs[name], shape, tensor)
                continue
            is_size = type(nbytes) is int and 0 <= nbytes <= LARGEST
            if follows is None or not is_size:
                raise RequestError(
                    400,
                    f"input {name!r}: binary_data_size needs the header "
                    "Inference-Header-Content-Length, and a size >= 0",
                )
            given[name] = shape, slice(at, at + nbytes)
            at += nbytes
        if at != (follows or 0):
            raise RequestError(
                400, f"expected {at} bytes after the JSON; received {follows or 0}"
            )
        return given

    def arrays(self, data: memoryview) -> list[Any]:
        """Return the tensors of a request from its binary data."""
        return [
            from_bytes(spec, shape, data[x]) if type(x) is slice else x
            for spec, shape, x in self.tensors
        ]

    def response(self, outputs: Sequence[Any]) -> Response:
        """Return the response with these outputs."""
        if all(in_binary for _, _, in_binary in self.wanted):
            blobs = [to_bytes(outputs[i]) for i, _, _ in self.wanted]
            sizes = [
                (outputs[i].shape, len(b))
                for (i, _, _), b in zip(self.wanted, blobs, strict=True)
            ]
            if self._head is None or self._head[0] != sizes:
                self._head = sizes, json_bytes(self._told(outputs, blobs))
            head = self._head[1]
            return Response(200, b"".join((head, *blobs)), OCTETS, len(head))
        blobs = [
            to_bytes(outputs[i]) if in_binary else b""
            for i, _, in_binary in self.wanted
        ]
        head = json_bytes(self._told(outputs, blobs))
        if any(in_binary for _, _, in_binary in self.wanted):
            return Response(200, b"".join((head, *blobs)), OCTETS, len(head))
        return Response(200, head)

    def _told(self, outputs: Sequence[Any], blobs: Sequence[bytes]) -> dict[str, Any]:
        """Return the JSON part of the response."""
        tensors = []
        for (i, spec, in_binary), blob in zip(self.wanted, blobs, strict=True):
            shape = list(outputs[i].shape)
            told: dict[str, Any] = {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": shape,
            }
            if in_binary:
                told["parameters"] = {"binary_data_size": len(blob)}
            else:
                told["data"] = to_values(outputs[i].ravel())
            tensors.append(told)
        version = self.version
        answer = {"model_name": version.name, "model_version": str(version.number)}
        if self.id is not None:
            answer["id"] = self.id
        return {**answer, "outputs": tensors}


class Version:
    """Version of a model, with cached plans for its clients.

    Args:
        name, number: the names of the model and the version.
        servable: the servable.
        limits: the compute limits.
    """

    def __init__(
        self, name: str, number: int, servable: Servable, limits: Limits
    ) -> None:
        self.name, self.number, self.servable = name, number, servable
        self.limits = limits
        self._plans: dict[Any, Plan] = {}

    def read(self, request: Request) -> tuple[Plan, list[Any]]:
        """Return the plan of an inference request, and its tensors.

        Raises:
            RequestError: the request is invalid for this model.
        """
        body, length = request.body, request.json_length
        if length is None:
            plan = Plan(self, read_json(bytes(body)), None)
            return plan, plan.arrays(memoryview(b""))
        if not 0 <= length <= len(body):
            raise RequestError(
                400, "Inference-Header-Content-Length is longer than the body"
            )
        head, follows = bytes(body[:length]), len(body) - length
        kept = self._plans.get((head, follows))
        if kept is not None:
            plan = kept
        else:
            plan = Plan(self, read_json(head), follows)
            if plan.is_kept and length <= LONGEST:
                if len(self._plans) >= PLANS:
                    self._plans.clear()
                self._plans[head, follows] = plan
        return plan, plan.arrays(memoryview(body)[length:])


def _parameters(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("parameters", {})
    if not isinstance(found, dict):
        raise RequestError(400, "parameters: expected an object")
    for name in found:
        if name.startswith("shared_memory"):
            raise RequestError(400, f"parameter {shown(name)}: no memory is shared")
    return found


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    found = parameters.get(name, default)
    if type(found) is not bool:
        raise RequestError(400, f"parameter {name!r}: expected true or false")
    return found


def _seconds(microseconds: Any) -> float | None:
    if microseconds is None or microseconds == 0:
        return None
    if type(microseconds) is not int or microseconds < 0:
        raise RequestError(400, "parameter 'timeout': expected microseconds")
    return min(microseconds, 10**12) * 1e-6


def _checked_shape(spec: TensorSpec, tensor: dict[str, Any]) -> list[int]:
    if tensor.get("datatype") != spec.datatype:
        raise RequestError(
            400,
            f"input {spec.name!r}: expected datatype {spec.datatype!r}; received "
            f"{shown(tensor.get('datatype'))}",
        )
    shape = tensor.get("shape")
    if not isinstance(shape, list) or any(
        type(n) is not int or n > LARGEST for n in shape
    ):
        raise RequestError(400, f"input {spec.name!r}: expected a shape of integers")
    spec.check_shape(shape)
    return shape


def _values(spec: TensorSpec, shape: list[int], tensor: dict[str, Any]) -> Any:
    """Return the values of a JSON tensor, flat or nested as its shape."""
    if not isinstance(tensor.get("data"), list):
        raise RequestError(400, f"input {spec.name!r}: expected a list as data")
    array = from_values(spec, tensor["data"])
    if array.ndim != 1 and list(array.shape) != shape or array.size != prod(shape):
        raise RequestError(
            400,
            f"input {spec.name!r}: expected values for shape {shape}; received "
            f"{list(array.shape)}",
        )
    return array.reshape(shape)


def _wanted(
    outputs: Any, servable: Servable, in_binary: bool
) -> list[tuple[int, TensorSpec, bool]]:
    """Return (index, spec, is_binary) of each output to send."""
    specs = {spec.name: (i, spec) for i, spec in enumerate(servable.outputs)}
    if not outputs:
        return [(i, spec, in_binary) for i, spec in specs.values()]
    if not isinstance(outputs, list):
        raise RequestError(400, "outputs: expected a list")
    found = []
    for output in outputs:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str) or name not in specs:
            raise RequestError(
                400,
                f"outputs: expected names among {list(specs)}; received {shown(name)}",
            )
        parameters = _parameters(output)
        if parameters.get("classification"):
            raise RequestError(400, f"output {name!r}: no classes are told")
        binary = _flag(parameters, "binary_data", in_binary)
        found.append((*specs[name], binary))
    if len({i for i, _, _ in found}) != len(found):
        raise RequestError(400, "outputs: expected each name once")
    return found
