"""Conversion to the protobuf message of an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.export.onnx.nodes import Body, Operation

# The IR version that introduced each operator set version.
IR_VERSIONS = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12}

Shape = Sequence[int | str | None]


@record
class Port:
    """Input or output: an extent is a number, a name if free, or None if unknown."""

    name: str
    dtype: str
    shape: Shape


@record
class ModelContent:
    """Content of an ONNX file.

    Attributes:
        name: the name of the model.
        inputs, outputs: in their order.
        nodes: in their order.
        constants: arrays by name.
        opset: the operator set version.
        metadata: strings by name.
    """

    name: str
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    nodes: Sequence[Operation]
    constants: Mapping[str, Any]
    opset: int
    metadata: Mapping[str, str]


def to_message(
    content: ModelContent, version: str, locations: Mapping[str, Any]
) -> Any:
    """Return a ModelProto.

    Args:
        content: its content.
        version: the version of this package.
        locations: the (location, offset) of each external constant.
    """
    from onnx import helper

    inputs, outputs = (
        [helper.make_tensor_value_info(p.name, _type(p.dtype), p.shape) for p in ports]
        for ports in (content.inputs, content.outputs)
    )
    graph = helper.make_graph(
        [_node(node) for node in content.nodes],
        content.name,
        inputs,
        outputs,
        [_tensor(n, x, locations.get(n)) for n, x in content.constants.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", content.opset)],
        ir_version=IR_VERSIONS[content.opset],
        producer_name="toolkit",
        producer_version=version,
        doc_string=f"The model {content.name!r}, exported for inference.",
    )
    helper.set_model_props(model, dict(content.metadata))
    return model


def _type(dtype: str) -> int:
    from onnx import TensorProto, helper

    if dtype == "string":
        return int(TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtypes.numpy_dtype(dtype))))


def _node(node: Operation) -> Any:
    from onnx import helper

    attrs = {}
    for name, value in node.attrs.items():
        if isinstance(value, Body):
            value = _body(node.name, value)
        elif name == "to":
            value = _type(value)
        attrs[name] = value
    return helper.make_node(
        node.operator, node.inputs, node.outputs, name=node.name, **attrs
    )


def _body(name: str, body: Body) -> Any:
    from onnx import helper

    inputs, outputs = (
        [
            helper.make_tensor_value_info(n, _type(t), [None] * rank)
            for n, t, rank in ports
        ]
        for ports in (body.inputs, body.outputs)
    )
    return helper.make_graph(
        [_node(n) for n in body.nodes], f"{name}/body", inputs, outputs
    )


def _tensor(name: str, array: Any, location_and_offset: tuple[str, int] | None) -> Any:
    """Return a constant, with its data or an external location."""
    from onnx import TensorProto, numpy_helper

    if location_and_offset is None:
        return numpy_helper.from_array(array, name)
    tensor = TensorProto(
        name=name,
        data_type=_type(dtypes.NAMES[array.dtype]),
        dims=array.shape,
        data_location=TensorProto.EXTERNAL,
    )
    location, offset = location_and_offset
    entries = {"location": location, "offset": offset, "length": array.nbytes}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor
