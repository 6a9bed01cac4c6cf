"""ONNX exporter, called by `Model.export`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolkit.arguments import is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.export.inference import ModelTensor, Signature, signature_of
from toolkit.export.onnx import rules as rules
from toolkit.export.onnx.files import save
from toolkit.export.onnx.model import IR_VERSIONS, ModelContent, Port
from toolkit.export.onnx.nodes import assign_unique_names, prune_nodes
from toolkit.export.onnx.prepare import PreparedModel, prepare_model
from toolkit.export.onnx.sizes import Extent
from toolkit.export.onnx.writer import Writer
from toolkit.release import VERSION, install_command
from toolkit.type_aliases import Axis

if TYPE_CHECKING:
    from toolkit.models.model import Model

DEFAULT_OPSET = 20


def export(
    model: Model,
    path: str,
    input_signature: Any = None,
    *,
    opset_version: int = DEFAULT_OPSET,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    external_data: bool | None = None,
    allow_random: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the inference graph of a model as an ONNX file.

    Args:
        model: a built model.
        path: the path of the file.
        input_signature: the call signature, if the model's inputs do not define it.
        opset_version: the operator set version, 17 to 24.
        dynamic_axes: names for extents by input and axis. Named extents are free, and
            extents with the same name are equal. An extent of None is always free.
        external_data: whether weights of 1 KB and more are in a separate file,
            `<path>.data`; None means yes for more than 1.5 GB in total.
        allow_random: whether to write operators that draw random numbers.
        metadata: strings by name, such as the names of classes.

    Raises:
        ImportError: the package onnx is missing.
        UnsupportedError: ONNX cannot represent the model; the message has the layer and
            reason.
    """
    label = f"{model.name}.export"
    require_onnx(label)
    if not is_int(opset_version) or opset_version not in IR_VERSIONS:
        raise ArgumentError(
            f"{label}: expected an opset_version of {[*IR_VERSIONS]}; received "
            f"{opset_version!r}"
        )
    _check_options(
        label,
        (_is_bool_or_none(external_data), "external_data", "a bool or None"),
        (isinstance(allow_random, bool), "allow_random", "a bool"),
        (_is_string_mapping(metadata), "metadata", "texts by name"),
        (
            _is_axis_names(dynamic_axes),
            "dynamic_axes",
            "names by axes by names of inputs",
        ),
    )
    signature = _with_axis_names(
        label, signature_of(model, input_signature), dynamic_axes
    )
    _check_dtypes(label, signature)
    prepared = prepare_model(model, signature, allow_random)
    content = _convert_model(model, prepared, opset_version, metadata or {})
    save(content, path, VERSION, external_data)


def _check_options(label: str, *checks: tuple[bool, str, str]) -> None:
    for is_right, name, expected in checks:
        if not is_right:
            raise ArgumentError(f"{label}: expected {expected} as {name}")


def _is_bool_or_none(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _is_axis_names(value: object) -> bool:
    """Return whether the value maps input names to axis numbers and names."""
    if value is None:
        return True
    return isinstance(value, Mapping) and all(map(_are_names, value.values()))


def _are_names(axes: Axis) -> bool:
    return isinstance(axes, Mapping) and all(
        isinstance(name, str) and name for name in axes.values()
    )


def _is_string_mapping(value: object) -> bool:
    return value is None or (
        isinstance(value, Mapping)
        and all(isinstance(text, str) for pair in value.items() for text in pair)
    )


def require_onnx(label: str) -> None:
    """Raise an error unless the package onnx is installed."""
    if find_spec("onnx") is None:
        raise ImportError(
            f"{label}: ONNX files need the package onnx; {install_command('onnx')}"
        )


def _check_dtypes(label: str, signature: Signature) -> None:
    for x in signature.inputs:
        if x.dtype == "string" or x.dtype.startswith("complex"):
            raise UnsupportedError(
                f"{label}: the input {x.name!r} has dtype {x.dtype}, which ONNX "
                "operators do not support; export the part of the model after it"
            )


def _with_axis_names(
    label: str, signature: Signature, dynamic_axes: Mapping[str, Any] | None
) -> Signature:
    """Return the signature with the given names of extents."""
    names_by_input = {name: dict(axes) for name, axes in (dynamic_axes or {}).items()}
    inputs = []
    for x in signature.inputs:
        shape = list(x.shape)
        for axis, name in names_by_input.pop(x.name, {}).items():
            if not is_int(axis) or not -len(shape) <= axis < len(shape):
                raise ArgumentError(
                    f"{label}: dynamic_axes: expected axes of {x.name!r} with shape "
                    f"{x.shape}; received {axis!r}"
                )
            shape[axis] = str(name)
        inputs.append(ModelTensor(x.name, tuple(shape), x.dtype))
    if names_by_input:
        raise ArgumentError(
            f"{label}: dynamic_axes: expected names of inputs, "
            f"{[x.name for x in signature.inputs]}; received {[*names_by_input]}"
        )
    return Signature(inputs, signature.structure)


# --- conversion -----------------------------------------------------------------------


def _convert_model(
    model: Model, prepared: PreparedModel, opset: int, metadata: Mapping[str, str]
) -> ModelContent:
    family = prepared.family
    graph = family.graph
    writer = Writer(family, opset)
    writer.labels.update(prepared.variables)
    count = len(prepared.inputs)
    for x, value in zip(prepared.inputs, graph.inputs, strict=False):
        writer.tensor_names[value] = writer.names(x.name)
    outputs = [writer.names(name) for name in prepared.names]
    defined_sizes: set[str] = set()
    for x, value in zip(prepared.inputs, graph.inputs, strict=False):
        for axis, size in enumerate(x.shape):
            if isinstance(size, str) and size not in defined_sizes:
                writer.define_size(size, writer.tensor_names[value], axis)
                defined_sizes.add(size)
    writer.samples.update(prepared.samples)
    for value in graph.inputs[count:]:
        dependence = prepared.size_constants[value]
        if dependence is not None:
            writer.tensor_names[value] = writer.write_size_dependent(dependence)
    writer.graph(graph)
    _name_outputs(writer, graph.outputs, outputs)
    nodes = prune_nodes(writer.all_nodes, outputs)
    used = writer.constants.select({name for node in nodes for name in node.reads()})
    inputs = [writer.tensor_names[value] for value in graph.inputs[:count]]
    constants = assign_unique_names(nodes, used, [*inputs, *outputs])
    return ModelContent(
        model.name,
        [
            Port(name, v.spec.dtype, x.shape)
            for name, x, v in zip(inputs, prepared.inputs, graph.inputs, strict=False)
        ],
        [
            _port(writer, name, value)
            for name, value in zip(outputs, graph.outputs, strict=True)
        ],
        nodes,
        constants,
        opset,
        _metadata(model, prepared) | {str(k): str(v) for k, v in metadata.items()},
    )


def _name_outputs(writer: Writer, values: tuple[Tensor, ...], names: list[str]) -> None:
    """Name the results, by their node or by a copy."""
    tensors = writer.results(values)
    renamed = dict(zip(tensors, names, strict=True))
    for node in writer.nodes:
        node.rename(renamed)


def _port(writer: Writer, name: str, value: Tensor) -> Port:
    shape = writer.family.shape(value)
    return Port(name, value.spec.dtype, [_extent(n) for n in shape])


def _extent(n: Any) -> int | str | None:
    """Return an extent for ONNX: a number, the name of a size, or None."""
    if isinstance(n, int):
        return n
    if isinstance(n, Extent) and len(n.terms) == 1:
        ((product, factor),) = n.terms.items()
        if factor == 1 and len(product) == 1:
            return product[0]
    return None


def _metadata(model: Model, prepared: PreparedModel) -> dict[str, str]:
    """Return the metadata: versions and names."""
    return {
        "toolkit_version": VERSION,
        "model": model.name,
        "model_class": type(model).__name__,
        "inputs": json.dumps([x.name for x in prepared.inputs]),
        "outputs": json.dumps([*prepared.names]),
    }
