"""Open Inference Protocol, version 2, over HTTP, with the binary tensor extension.

Clients repeat the JSON part of a request. A `RequestLayout` caches its meaning and the
head of the response.

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
    format_value,
    json_bytes,
    read_json,
)
from toolkit.serving.servable import Servable
from toolkit.serving.tensors import (
    TensorSpec,
    common_extent,
    from_bytes,
    from_values,
    to_bytes,
    to_values,
)

MAX_LAYOUTS = 512  # cached for each version of a model
MAX_SIZE = 2**63 - 1  # maximum of extents and sizes
MAX_CACHED_JSON = 4096  # maximum size of a cached JSON part in bytes


def model_metadata(name: str, version: int, servable: Servable) -> dict[str, Any]:
    """Return the response of `GET /v2/models/NAME`."""
    return {
        "name": name,
        "versions": [str(version)],
        "platform": servable.platform,
        "inputs": [_describe_spec(spec) for spec in servable.inputs],
        "outputs": [_describe_spec(spec) for spec in servable.outputs],
    }


def _describe_spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.dims}


class RequestLayout:
    """Meaning of a request's JSON part: tensor locations and response format.

    Args:
        version: the version of the model.
        value: the JSON object.
        binary_length: the number of bytes after the JSON; None if binary data is not
            possible.

    Raises:
        RequestError: the object is invalid.

    Attributes:
        rows: the size of the batch axis.
        timeout: the client's timeout; None if unspecified.
    """

    def __init__(
        self, version: ModelVersion, value: dict[str, Any], binary_length: int | None
    ) -> None:
        servable = version.servable
        parameters = _read_parameters(value)
        for name in ("sequence_id", "sequence_start", "sequence_end"):
            if parameters.get(name):
                raise RequestError(
                    400, f"parameter {name!r}: models do not support sequences"
                )
        self.timeout = _read_timeout(parameters.get("timeout"))
        self.version = version
        self.id = value.get("id")
        if self.id is not None and not isinstance(self.id, str):
            raise RequestError(400, "id: expected a string")
        tensors = self._read_inputs(value, servable, binary_length)
        # In model order: (spec, shape, array or slice of the body).
        self.tensors: list[tuple[TensorSpec, list[int], Any]] = []
        for spec in servable.inputs:
            if spec.name not in tensors:
                raise RequestError(400, f"input {spec.name!r} is missing")
            self.tensors.append((spec, *tensors[spec.name]))
        self.rows = common_extent(shape[0] for _, shape, _ in self.tensors)
        is_binary = _read_flag(parameters, "binary_data_output", False)
        self.output_formats = _read_outputs(value.get("outputs"), servable, is_binary)
        json_outputs = {i for i, _, is_binary in self.output_formats if not is_binary}
        version.limits.check_rows(servable, self.rows, json_outputs)
        # Without inline values, the layout is reusable.
        self.is_reusable = all(isinstance(x, slice) for _, _, x in self.tensors)
        self._head: tuple[Any, bytes] | None = None

    def _read_inputs(
        self, value: dict[str, Any], servable: Servable, binary_length: int | None
    ) -> dict[str, tuple[list[int], Any]]:
        """Return name -> shape and values (or their location) of each input."""
        specs = {spec.name: spec for spec in servable.inputs}
        inputs = value.get("inputs")
        if not isinstance(inputs, list):
            raise RequestError(400, "inputs: expected a list of tensors")
        tensors: dict[str, tuple[list[int], Any]] = {}
        offset = 0
        for tensor in inputs:
            name = tensor.get("name") if isinstance(tensor, dict) else None
            if not isinstance(name, str) or name not in specs or name in tensors:
                raise RequestError(
                    400,
                    f"inputs: expected each of {list(specs)} once; received "
                    f"{format_value(name)}",
                )
            shape = _read_shape(specs[name], tensor)
            nbytes = _read_parameters(tensor).get("binary_data_size")
            if nbytes is None:
                tensors[name] = shape, _read_values(specs[name], shape, tensor)
                continue
            is_size = type(nbytes) is int and 0 <= nbytes <= MAX_SIZE
            if binary_length is None or not is_size:
                raise RequestError(
                    400,
                    f"input {name!r}: binary_data_size needs the header "
                    "Inference-Header-Content-Length, and a size >= 0",
                )
            tensors[name] = shape, slice(offset, offset + nbytes)
            offset += nbytes
        if offset != (binary_length or 0):
            raise RequestError(
                400,
                f"expected {offset} bytes after the JSON; received "
                f"{binary_length or 0}",
            )
        return tensors

    def arrays(self, data: memoryview) -> list[Any]:
        """Return the tensors of a request from its binary data."""
        return [
            from_bytes(spec, shape, data[x]) if type(x) is slice else x
            for spec, shape, x in self.tensors
        ]

    def response(self, outputs: Sequence[Any]) -> Response:
        """Return the response with these outputs."""
        if all(is_binary for _, _, is_binary in self.output_formats):
            blobs = [to_bytes(outputs[i]) for i, _, _ in self.output_formats]
            sizes = [
                (outputs[i].shape, len(b))
                for (i, _, _), b in zip(self.output_formats, blobs, strict=True)
            ]
            if self._head is None or self._head[0] != sizes:
                self._head = sizes, json_bytes(self._json_part(outputs, blobs))
            head = self._head[1]
            return Response(200, b"".join((head, *blobs)), OCTETS, len(head))
        blobs = [
            to_bytes(outputs[i]) if is_binary else b""
            for i, _, is_binary in self.output_formats
        ]
        head = json_bytes(self._json_part(outputs, blobs))
        if any(is_binary for _, _, is_binary in self.output_formats):
            return Response(200, b"".join((head, *blobs)), OCTETS, len(head))
        return Response(200, head)

    def _json_part(
        self, outputs: Sequence[Any], blobs: Sequence[bytes]
    ) -> dict[str, Any]:
        """Return the JSON part of the response."""
        tensors = []
        for (i, spec, is_binary), blob in zip(self.output_formats, blobs, strict=True):
            shape = list(outputs[i].shape)
            description: dict[str, Any] = {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": shape,
            }
            if is_binary:
                description["parameters"] = {"binary_data_size": len(blob)}
            else:
                description["data"] = to_values(outputs[i].ravel())
            tensors.append(description)
        version = self.version
        answer = {"model_name": version.name, "model_version": str(version.number)}
        if self.id is not None:
            answer["id"] = self.id
        return {**answer, "outputs": tensors}


class ModelVersion:
    """Version of a model, with cached layouts for its clients.

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
        self._layouts: dict[Any, RequestLayout] = {}

    def parse_request(self, request: Request) -> tuple[RequestLayout, list[Any]]:
        """Return the layout of an inference request, and its tensors.

        Raises:
            RequestError: the request is invalid for this model.
        """
        body, length = request.body, request.json_length
        if length is None:
            layout = RequestLayout(self, read_json(bytes(body)), None)
            return layout, layout.arrays(memoryview(b""))
        if not 0 <= length <= len(body):
            raise RequestError(
                400, "Inference-Header-Content-Length is longer than the body"
            )
        head, binary_length = bytes(body[:length]), len(body) - length
        cached = self._layouts.get((head, binary_length))
        if cached is not None:
            layout = cached
        else:
            layout = RequestLayout(self, read_json(head), binary_length)
            if layout.is_reusable and length <= MAX_CACHED_JSON:
                if len(self._layouts) >= MAX_LAYOUTS:
                    self._layouts.clear()
                self._layouts[head, binary_length] = layout
        return layout, layout.arrays(memoryview(body)[length:])


def _read_parameters(value: dict[str, Any]) -> dict[str, Any]:
    parameters = value.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError(400, "parameters: expected an object")
    for name in parameters:
        if name.startswith("shared_memory"):
            raise RequestError(
                400, f"parameter {format_value(name)}: shared memory is unsupported"
            )
    return parameters


def _read_flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise RequestError(400, f"parameter {name!r}: expected true or false")
    return value


def _read_timeout(microseconds: Any) -> float | None:
    if microseconds is None or microseconds == 0:
        return None
    if type(microseconds) is not int or microseconds < 0:
        raise RequestError(400, "parameter 'timeout': expected microseconds")
    return min(microseconds, 10**12) * 1e-6


def _read_shape(spec: TensorSpec, tensor: dict[str, Any]) -> list[int]:
    if tensor.get("datatype") != spec.datatype:
        raise RequestError(
            400,
            f"input {spec.name!r}: expected datatype {spec.datatype!r}; received "
            f"{format_value(tensor.get('datatype'))}",
        )
    shape = tensor.get("shape")
    if not isinstance(shape, list) or any(
        type(n) is not int or n > MAX_SIZE for n in shape
    ):
        raise RequestError(400, f"input {spec.name!r}: expected a shape of integers")
    spec.check_shape(shape)
    return shape


def _read_values(spec: TensorSpec, shape: list[int], tensor: dict[str, Any]) -> Any:
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


def _read_outputs(
    outputs: Any, servable: Servable, is_binary: bool
) -> list[tuple[int, TensorSpec, bool]]:
    """Return (index, spec, is_binary) of each output to send."""
    specs = {spec.name: (i, spec) for i, spec in enumerate(servable.outputs)}
    if not outputs:
        return [(i, spec, is_binary) for i, spec in specs.values()]
    if not isinstance(outputs, list):
        raise RequestError(400, "outputs: expected a list")
    formats = []
    for output in outputs:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str) or name not in specs:
            raise RequestError(
                400,
                f"outputs: expected names among {list(specs)}; received "
                f"{format_value(name)}",
            )
        parameters = _read_parameters(output)
        if parameters.get("classification"):
            raise RequestError(400, f"output {name!r}: class labels are unsupported")
        is_binary_output = _read_flag(parameters, "binary_data", is_binary)
        formats.append((*specs[name], is_binary_output))
    if len({i for i, _, _ in formats}) != len(formats):
        raise RequestError(400, "outputs: expected each name once")
    return formats
