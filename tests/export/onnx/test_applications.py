"""Test the networks of `applications` in ONNX Runtime, if it is installed."""

import numpy as np
import pytest

from tests.export.onnx.rows import APPLICATIONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", APPLICATIONS)
def test_application(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = APPLICATIONS[name]()
    model.export(tmp_path / "m.onnx", verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    shape = (2, *(n or 224 for n in model.input_shape[1:]))
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    (outputs,) = session.run(None, {session.get_inputs()[0].name: x})
    expected = model(x, training=False).numpy()
    assert np.abs(outputs - expected).max() <= 1e-5 * np.abs(expected).max()
