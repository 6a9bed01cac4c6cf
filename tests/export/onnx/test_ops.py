"""Test every sample of every operation, exported and run by `onnx.reference`."""

import numpy as np
import onnx
import pytest

import toolkit
from tests.export.onnx.reference import onnx_run
from tests.ops.samples import SAMPLES
from toolkit import ops, tree
from toolkit.errors import UnsupportedError
from toolkit.layers import InputSpec

# The refused rows: a reason, and prefixes of the rows' names; $ marks their end.
REFUSED = {
    "no operator for this decomposition": (
        *("cholesky-", "lu_factor-", "qr-", "svd-", "eigh-", "pinv-", "lstsq-"),
        *("matrix_rank-", "norm-3x4-ord=nuc", "norm-3x4-ord=2,axis=None"),
        *("norm-3x4-ord=-2,axis=None", "norm-2x3x4-ord=nuc"),
    ),
    "no operator for linear systems": (
        *(
            "cholesky_inverse-",
            "inv-",
            "slogdet-",
            "logdet-",
            "solve-",
            "logm-",
            "expm-",
            "sqrtm-",
        ),
        *("solve_triangular-", "image.perspective_transform-"),
    ),
    "only in opset 26": (
        *("nextafter-", "view-3x4,uint32", "view-3x4,uint16", "signbit-7$"),
        "ldexp-",
    ),
    "the shape of the result depends on values": (
        *("nonzero-", "where-3x4$", "unique-3x4", "unique-4-return_index"),
        *("bincount-4$", "get_item-3x4x5,3x4", "get_item-5,5"),
        "get_item-3x4x5,slice(None, None, None),4",
    ),
}
# `onnx.reference` is wrong for these: it omits the padding at the end, runs no Scan
# without steps, and gathers elements along no axis of more than 64.
WRONG_THERE = (
    "max_pool-2x5x2-pool_size=2,strides=1,padding=same",
    "cumprod-0x3-axis=0",
    "top_k-2x350,5",
    "top_k-1000,12",
)


def leaves_of(row):
    """Return the arrays among the inputs of a row."""
    return [x for x in tree.flatten(row.inputs) if isinstance(x, np.ndarray)]


def model_of(row):
    """Return a model that applies the operation of a row to its arrays."""

    class Computes(toolkit.Model):
        def call(self, *arrays):
            iterator = iter(arrays)
            inputs = tree.map_structure(
                lambda x: next(iterator) if isinstance(x, np.ndarray) else x, row.inputs
            )
            return [y for y in tree.flatten(row.call(*inputs)) if hasattr(y, "shape")]

    return Computes(name="computes")


def reason_of(row):
    """Return the reason for which a row is refused, or None."""
    text = f"{row}$"
    for reason, starts in REFUSED.items():
        if text.startswith(starts):
            return reason
    return None


ROWS = [
    row
    for row in SAMPLES
    if row.traced and leaves_of(row) and not str(row).startswith(WRONG_THERE)
]


@pytest.mark.cases("row", ROWS)
@pytest.mark.one_in(3)
def test_sample(row, tmp_path):
    leaves, path = leaves_of(row), tmp_path / "m.onnx"
    path.unlink(missing_ok=True)  # the file of another row
    model = model_of(row)
    signature = [InputSpec(shape=x.shape, dtype=x.dtype.name) for x in leaves]
    reason = reason_of(row)
    if reason is not None:
        with pytest.raises(UnsupportedError, match=reason):
            model.export(path, verbose=False, input_signature=signature)
        assert not path.exists()
        return
    expected = [y.numpy() for y in model(*map(ops.convert_to_tensor, leaves))]
    model.export(path, verbose=False, input_signature=signature)
    names = [x.name for x in onnx.load(path).graph.input]
    outputs = onnx_run(path)(dict(zip(names, leaves, strict=True)))
    for a, b in zip(map(np.asarray, outputs), expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def onnxruntime_run(path):
    """Return a function of feeds that runs a file in ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


ENDS = (0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 2.5, -2)
NEAR_ONE = (1 - 6e-8, 6e-8 - 1, 1 - 1e-6, 0.99999, -0.999, 0.9, 0.3, 1e-20, 1 + 2e-7)


@pytest.mark.parametrize("run", [onnx_run, onnxruntime_run])
@pytest.mark.parametrize("name", ["arctan2", "erfinv"])
def test_special_values(name, run, tmp_path):
    """Test signed zeros, ends of ranges, infinities and NaN."""
    pairs = np.array([(y, x) for y in ENDS for x in ENDS], "float32")
    columns = [*pairs.T] if name == "arctan2" else [np.float32(ENDS + NEAR_ONE)]
    symbols = [toolkit.Input((), name=f"x{i}") for i in range(len(columns))]
    model = toolkit.Model(symbols, getattr(ops, name)(*symbols))
    model.export(tmp_path / "m.onnx", verbose=False)
    names = [x.name for x in symbols]
    (result,) = run(tmp_path / "m.onnx")(dict(zip(names, columns, strict=True)))
    exact = [np.float64(x) for x in columns]
    if name == "arctan2":
        expected = np.arctan2(*exact)
        assert (np.signbit(result) == np.signbit(expected))[~np.isnan(expected)].all()
    else:
        expected = ops.erfinv(exact[0]).numpy()
    np.testing.assert_allclose(result, expected.astype("float32"), rtol=1e-6, atol=0)
