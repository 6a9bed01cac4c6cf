"""Test the export of every row of the table of layers at untraced sizes."""

import numpy as np
import onnx
import pytest

import toolkit
from tests.export.onnx.reference import check_export, relative_error
from tests.export.onnx.rows import FREE, MODELS, REFUSED, chain, dropping
from toolkit import Input, layers, ops
from toolkit.errors import UnsupportedError


@pytest.mark.parametrize("name", MODELS)
def test_layer(name, tmp_path):
    check_export(MODELS[name](), tmp_path / "m.onnx")


@pytest.mark.parametrize("free", [2, 4, 9])
@pytest.mark.parametrize("name", FREE)
def test_free_extents(name, free, tmp_path):
    check_export(FREE[name](), tmp_path / "m.onnx", sizes=(1, 3), free=free)


@pytest.mark.parametrize("opset", [17, 18, 19, 21, 22, 23, 24])
@pytest.mark.parametrize(
    "name",
    [
        *("images", "causal attention", "free steps, LSTM", "Equalization, training"),
        *("-MultiHeadAttention", "-LayerNormalization", "0-Dense"),
    ],
)
def test_opset(name, opset, tmp_path):
    key = next(key for key in MODELS if f"-{key}".endswith(name))
    proto = check_export(MODELS[key](), tmp_path / "m.onnx", opset_version=opset)
    assert [x.version for x in proto.opset_import] == [opset]
    assert proto.ir_version == onnx.helper.OP_SET_ID_VERSION_MAP["ai.onnx", opset]


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name, tmp_path):
    make, reason = REFUSED[name]
    toolkit.utils.clear_session()  # names are counted
    with pytest.raises(UnsupportedError, match=f"(?s)export: .*{reason}"):
        make().export(tmp_path / "m.onnx", verbose=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_narrow_floats_are_computed_in_float32(policy, tmp_path):
    def make(dtype):
        toolkit.utils.set_random_seed(0)
        return chain(
            layers.Dense(3, activation="gelu", dtype=dtype),
            layers.LSTM(4, return_sequences=True, dtype=dtype),
            layers.LayerNormalization(dtype=dtype),
        )

    narrow, wide = make(policy), make("float32")
    wide.set_weights([w.astype("float32") for w in narrow.get_weights()])
    narrow.export(tmp_path / "m.onnx", verbose=False)
    proto = onnx.load(tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype("float32")
    evaluator = onnx.reference.ReferenceEvaluator(proto)
    (output,) = evaluator.run(None, {proto.graph.input[0].name: x})
    assert relative_error(output, wide(x, training=False).numpy()) < 1e-5


def test_random_numbers_are_exported_on_request(tmp_path):
    path = tmp_path / "m.onnx"
    dropping().export(path, verbose=False, allow_random=True)
    proto = onnx.load(path)
    evaluator = onnx.reference.ReferenceEvaluator(proto)
    ones = np.ones((3, 600), "float32")
    (output,) = evaluator.run(None, {proto.graph.input[0].name: ones})
    assert set(np.unique(output)) == {0.0, 2.0}
    assert 0.4 < (output == 0).mean() < 0.6


def test_fixed_batch_sizes(tmp_path):
    model = toolkit.Sequential([Input(batch_shape=(3, 4)), layers.Dense(2)])
    proto = check_export(model, tmp_path / "m.onnx", sizes=(3,))
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


INF, NAN = np.inf, np.nan
NUMBERS = [1, 1, -1, 5, 5, 1e8, -5, INF, 1, 0, 3, NAN, INF, -INF, 2, -2]
OTHERS = [0.1, 0.3, 0.1, INF, -INF, 3, INF, 2, 0, 0, 3, 1, -INF, INF, -INF, -INF]
SPECIAL = {
    "floor_divide": lambda x, y: ops.floor_divide(x, y),
    "mod": lambda x, y: ops.mod(x, y),
    "arctan2": lambda x, y: ops.arctan2(x, y),
    "arctan2, turned": lambda x, y: ops.arctan2(y, x),
    "log1p": lambda x, y: ops.log1p(ops.abs(x)) + y * 0,
    "searchsorted": lambda x, y: ops.searchsorted(np.float32([0, 1, 2]), x),
    "searchsorted, right": lambda x, y: ops.searchsorted(
        np.float32([0, 1, 2]), x, side="right"
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_infinite_numbers(name, tmp_path):
    a, b = Input((16,)), Input((16,))
    call = SPECIAL[name]
    model = toolkit.Model([a, b], layers.Lambda(lambda pair: call(*pair))([a, b]))
    model.export(tmp_path / "m.onnx", verbose=False)
    proto = onnx.load(tmp_path / "m.onnx")
    arrays = [np.float32([row]) for row in (NUMBERS, OTHERS)]
    feeds = dict(zip([x.name for x in proto.graph.input], arrays, strict=True))
    with np.errstate(all="ignore"):
        (outputs,) = onnx.reference.ReferenceEvaluator(proto).run(None, feeds)
        expected = model(arrays).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-6)


def test_dilations_have_explicit_pads(tmp_path):
    """ONNX Runtime refuses auto_pad with dilations."""
    layer = layers.Conv2D(2, 3, dilation_rate=2, padding="same")
    proto = check_export(chain(layer, shape=(None, None, 3)), tmp_path / "m.onnx")
    (node,) = [n for n in proto.graph.node if n.op_type == "Conv"]
    assert "auto_pad" not in {a.name for a in node.attribute}


def test_constants_that_broadcast_against_normalized_inputs(tmp_path):
    c = np.random.default_rng(0).normal(size=(2, 1, 3)).astype("float32")
    normal = layers.LayerNormalization(axis=(2, 3), scale=False, center=False)
    model = chain(normal, layers.Lambda(lambda x: x * c), shape=(2, 2, 3))
    check_export(model, tmp_path / "m.onnx")
