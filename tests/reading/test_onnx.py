"""Test the ONNX reader against the package onnx, and its errors."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models.importing.backend_suite import load_cases
from toolkit.errors import MissingFileError, ModelFileError
from toolkit.reading.onnx.file import open_onnx
from toolkit.reading.onnx.graph import graph_config, graph_from_config
from toolkit.reading.onnx.wire import unpack_integers

TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}


def model(arrays, **options):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", [value], [output], arrays)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8, **options)


def numbers(dtype):
    values = np.array([0, 1, 2, 127, 1, 0], "int64")
    if dtype in ("float32", "float64"):
        values = values * 1.25 - 3
    if dtype.startswith("int"):
        values = -values
    return values.reshape(2, 3)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_arrays_of_every_dtype(dtype, raw, tmp_path):
    kind = helper.tensor_dtype_to_np_dtype(TYPES[dtype])
    values = numbers(dtype).astype(kind)
    data = values.tobytes() if raw else values.reshape(-1)
    tensor = helper.make_tensor("w", TYPES[dtype], (2, 3), data, raw)
    onnx.save(model([tensor]), tmp_path / "m.onnx")
    with open_onnx(tmp_path / "m.onnx") as file:
        array = file.graph.initializers["w"]
    assert array.dtype.name == dtype and array.shape == (2, 3)
    assert np.array_equal(array.astype("float64"), values.astype("float64"))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (1000,)])
def test_arrays_of_every_shape(shape, tmp_path):
    values = np.random.default_rng(0).integers(-(2**62), 2**62, shape)
    listed = helper.make_tensor("listed", TensorProto.INT64, shape, values.reshape(-1))
    tensors = [numpy_helper.from_array(values, "raw"), listed]
    onnx.save(model(tensors), tmp_path / "m.onnx")
    with open_onnx(tmp_path / "m.onnx") as file:
        for array in file.graph.initializers.values():
            assert array.shape == shape and np.array_equal(array, values)


def test_packed_integers():
    values = [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63), 5]
    tensor = TensorProto(int64_data=values).SerializeToString()
    start = tensor.index(bytes([0, 1, 127]))
    assert unpack_integers(memoryview(tensor)[start:]).tolist() == values


def test_arrays_in_another_file(tmp_path):
    arrays = {f"w{i}": np.full((1000 + i,), i, "float32") for i in range(3)}
    tensors = [numpy_helper.from_array(x, name) for name, x in arrays.items()]
    options = {"save_as_external_data": True, "location": "m.onnx.data"}
    onnx.save(model(tensors), tmp_path / "m.onnx", **options)
    with open_onnx(tmp_path / "m.onnx") as file:
        for name, array in arrays.items():
            assert np.array_equal(file.graph.initializers[name], array)
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(MissingFileError, match=r"data file 'm\.onnx\.data' is missing"):
        with open_onnx(tmp_path / "m.onnx"):
            pass


def attribute_of(value):
    """Return an attribute as the reader represents it."""
    attribute = helper.get_attribute_value(value)
    if isinstance(attribute, onnx.TensorProto):
        return numpy_helper.to_array(attribute)
    if isinstance(attribute, bytes):
        return attribute.decode()
    return (
        [v.decode() if isinstance(v, bytes) else v for v in attribute]
        if (isinstance(attribute, list))
        else attribute
    )


def same(actual, expected):
    if isinstance(expected, np.ndarray):
        return actual.dtype == expected.dtype and np.array_equal(actual, expected)
    return actual == expected


def test_nodes_and_values(tmp_path):
    """Check all graphs without nested graphs in the tests of ONNX."""
    count = 0
    for case in load_cases().values():
        model = onnx.load_from_string(case.model)
        nodes = model.graph.node
        has_graphs = any(a.HasField("g") for node in nodes for a in node.attribute)
        if has_graphs or len(model.functions):
            continue
        (tmp_path / "m.onnx").write_bytes(case.model)
        try:
            with open_onnx(tmp_path / "m.onnx") as file:
                graph = file.graph
        except ModelFileError:
            continue  # of unsupported dtypes
        count += 1
        for node, right in zip(graph.nodes, nodes, strict=True):
            assert (node.op, list(node.inputs)) == (right.op_type, list(right.input))
            assert list(node.outputs) == list(right.output)
            attributes = {a.name: attribute_of(a) for a in right.attribute}
            assert node.attributes.keys() == attributes.keys()
            assert all(same(node.attributes[k], v) for k, v in attributes.items())
        names = [v.name for v in model.graph.input]
        assert [v.name for v in graph.inputs] == [
            name for name in names if name not in graph.initializers
        ]
        restored = graph_from_config(graph_config(graph))
        assert graph_config(restored) == graph_config(graph)
    assert count > 1_000


def test_functions_are_inlined(tmp_path):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = helper.make_function(
        *("own", "scaled", ["a"], ["b"]),
        [
            helper.make_node("Identity", ["a"], ["t"]),
            helper.make_node("LeakyRelu", ["t"], ["b"]),
        ],
        opsets[:1],
        ["alpha"],
    )
    reference = inner.node[1].attribute.add()
    reference.name, reference.ref_attr_name = "alpha", "alpha"
    reference.type = onnx.AttributeProto.FLOAT
    outer = helper.make_function(
        *("own", "twice", ["a"], ["b"]),
        [
            helper.make_node("scaled", ["a"], ["t"], domain="own", alpha=0.5),
            helper.make_node("scaled", ["t"], ["b"], domain="own", alpha=0.25),
        ],
        opsets,
    )
    proto = model([], functions=[inner, outer])
    proto.opset_import.append(opsets[1])
    proto.graph.node[0].CopyFrom(helper.make_node("twice", ["x"], ["y"], domain="own"))
    onnx.save(proto, tmp_path / "m.onnx")
    with open_onnx(tmp_path / "m.onnx") as file:
        nodes = file.graph.nodes
    assert [node.op for node in nodes] == ["Identity", "LeakyRelu"] * 2
    assert [n.attributes.get("alpha") for n in nodes] == [None, 0.5, None, 0.25]
    assert nodes[0].inputs == ("x",) and nodes[-1].outputs == ("y",)
    assert len({name for node in nodes for name in node.outputs}) == 4


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match="there is no file"):
        with open_onnx(tmp_path / "m.onnx"):
            pass
