"""TensorFlow Serving's REST API: `predict`, and the status and metadata of a model.

Reference: https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.serving.limits import Limits
from toolkit.serving.messages import (
    Request,
    RequestError,
    Response,
    json_response,
    read_json,
)
from toolkit.serving.servable import Servable
from toolkit.serving.tensors import (
    DATATYPES,
    TensorSpec,
    common_extent,
    from_values,
    to_values,
)

SIGNATURE = "serving_default"


def status(number: int, is_ready: bool) -> dict[str, Any]:
    """Return the response of `GET /v1/models/NAME`."""
    version_status = {
        "version": str(number),
        "state": "AVAILABLE" if is_ready else "UNLOADING",
        "status": {"error_code": "OK", "error_message": ""},
    }
    return {"model_version_status": [version_status]}


def metadata(name: str, number: int, servable: Servable) -> dict[str, Any]:
    """Return the response of `GET /v1/models/NAME/metadata`."""
    signature = {
        "inputs": {spec.name: _describe_spec(spec) for spec in servable.inputs},
        "outputs": {spec.name: _describe_spec(spec) for spec in servable.outputs},
        "method_name": "tensorflow/serving/predict",
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(number)},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }


def _describe_spec(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"size": str(n), "name": ""} for n in spec.dims]
    return {
        "dtype": DATATYPES[spec.dtype][1],
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": spec.name,
    }


class Prediction:
    """Request of `predict`: its tensors and response format.

    Args:
        servable: the servable.
        request: the JSON object, with `instances` in row format or `inputs` in column
            format.
        limits: the compute limits.

    Raises:
        RequestError: the request is invalid for this model.
    """

    def __init__(self, servable: Servable, request: Request, limits: Limits) -> None:
        value = read_json(bytes(request.body))
        name = value.get("signature_name") or SIGNATURE
        if name != SIGNATURE:
            raise RequestError(404, f"expected the signature {SIGNATURE!r}")
        if ("instances" in value) == ("inputs" in value):
            raise RequestError(400, "expected either 'instances' or 'inputs'")
        self.servable = servable
        self.is_row_format = "instances" in value
        key = "instances" if self.is_row_format else "inputs"
        split = _split_rows if self.is_row_format else _split_inputs
        columns = split(servable.inputs, value[key])
        self.arrays = []
        for spec, values in zip(servable.inputs, columns, strict=True):
            array = from_values(spec, values)
            spec.check_shape(array.shape)
            self.arrays.append(array)
        self.rows = common_extent(len(x) for x in self.arrays)
        limits.check_rows(servable, self.rows, range(len(servable.outputs)))
        self.timeout: float | None = None

    def response(self, outputs: Sequence[Any]) -> Response:
        """Return the response with these outputs."""
        values = [to_values(y) for y in outputs]
        names = [spec.name for spec in self.servable.outputs]
        if not self.is_row_format:
            columns = dict(zip(names, values, strict=True))
            return json_response({"outputs": columns if len(names) > 1 else values[0]})
        if len(names) == 1:
            return json_response({"predictions": values[0]})
        rows = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        return json_response({"predictions": rows})


def _split_rows(specs: Sequence[TensorSpec], rows: Any) -> list[Any]:
    """Return the values of each input from a list of rows."""
    if not isinstance(rows, list) or not rows:
        raise RequestError(400, "instances: expected a list of rows")
    if not isinstance(rows[0], dict) or _is_encoded_bytes(rows[0]):
        if len(specs) > 1:
            raise RequestError(
                400, f"instances: expected objects with {[s.name for s in specs]}"
            )
        return [_decode(specs[0], rows)]
    names = {spec.name for spec in specs}
    if not all(isinstance(row, dict) and set(row) == names for row in rows):
        raise RequestError(
            400, f"instances: expected {sorted(names)} in each row, without other keys"
        )
    return [_decode(spec, [row[spec.name] for row in rows]) for spec in specs]


def _split_inputs(specs: Sequence[TensorSpec], inputs: Any) -> list[Any]:
    """Return the values of each input, from an object or a single input."""
    if not isinstance(inputs, dict) or _is_encoded_bytes(inputs):
        if len(specs) > 1:
            raise RequestError(
                400, f"inputs: expected an object with {[s.name for s in specs]}"
            )
        inputs = {specs[0].name: inputs}
    names = {spec.name for spec in specs}
    if set(inputs) != names:
        raise RequestError(400, f"inputs: expected {sorted(names)}, without other keys")
    return [_decode(spec, inputs[spec.name]) for spec in specs]


def _is_encoded_bytes(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"b64"}


def _decode(spec: TensorSpec, values: Any) -> Any:
    """Decode strings that are written as {"b64": ...}."""
    if spec.dtype != dtypes.STRING:
        return values
    if isinstance(values, list):
        return [_decode(spec, value) for value in values]
    if not _is_encoded_bytes(values):
        return values
    try:
        return b64decode(values["b64"], validate=True).decode()
    except (ValueError, TypeError) as error:
        raise RequestError(
            400, f"input {spec.name!r}: expected UTF-8 in b64"
        ) from error
