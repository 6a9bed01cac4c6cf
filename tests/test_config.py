"""Settings: their setters, what they refuse, and the environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import toolkit
from toolkit.errors import ArgumentError, DeviceError


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_unknown_values_are_refused_with_the_valid_ones():
    with pytest.raises(ArgumentError, match="'float32'.*received 'float31'"):
        toolkit.config.set_floatx("float31")
    with pytest.raises(ArgumentError, match="'channels_last'.*received 'nhwc'"):
        toolkit.config.set_image_data_format("nhwc")
    with pytest.raises(ArgumentError, match="'numpy', 'reference'.*received 'abacus'"):
        toolkit.config.set_backend("abacus")
    with pytest.raises(ArgumentError, match="epsilon"):
        toolkit.config.set_epsilon(0)


def test_floatx_is_the_default_dtype():
    toolkit.config.set_floatx("float64")
    try:
        assert toolkit.ops.zeros((1,)).dtype == "float64"
        assert toolkit.ops.convert_to_tensor(1.5).dtype == "float64"
    finally:
        toolkit.config.set_floatx("float32")


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "CPU:0"])
def test_device_scope(name):
    with toolkit.device(name):
        assert toolkit.ops.ones(()).device == "cpu:0"


def test_a_device_that_is_not_there():
    with pytest.raises(DeviceError, match="expected one of cpu:0; received 'gpu:0'"):
        with toolkit.device("gpu:0"):
            pass
    with pytest.raises(DeviceError, match="received 'tpu'"):
        toolkit.config.set_device("tpu")


def test_the_environment_chooses_backend_device_and_dtype():
    code = "import toolkit; print(toolkit.config.backend(), toolkit.ops.ones(()).dtype)"
    done = run(code, TOOLKIT_BACKEND="reference", TOOLKIT_FLOATX="float64")
    assert done.stdout.split() == ["reference", "float64"], done.stderr
    done = run("import toolkit; toolkit.ops.ones(()) + 1", TOOLKIT_DEVICE="gpu")
    assert "DeviceError: device: expected one of cpu:0" in done.stderr


def test_show_names_cpu_blas_and_threads(capsys):
    toolkit.config.show()
    text = capsys.readouterr().out
    for word in (
        "backend numpy (active)",
        "cpu:",
        "blas:",
        "threads:",
        "device: cpu:0",
    ):
        assert word in text


def test_the_reference_backend_trains_too():
    code = """
import numpy as np, toolkit
from toolkit import layers
toolkit.utils.set_random_seed(0)
model = toolkit.Sequential([layers.Dense(1)])
model.compile("sgd", "mse")
x = np.arange(8.0).reshape(4, 2)
history = model.fit(x, x.sum(1, keepdims=True) / 8, epochs=3, verbose=0).history
assert history["loss"][-1] < history["loss"][0]
"""
    done = run(code, TOOLKIT_BACKEND="reference")
    assert done.returncode == 0, done.stderr
