"""Tests of settings: setters, refused values, and environment variables."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import toolkit
from toolkit import settings
from toolkit.errors import ArgumentError, DeviceError, UnsupportedError


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_unknown_values_list_valid_ones():
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


def test_missing_device_is_refused():
    with pytest.raises(DeviceError, match="expected one of .*; received 'gpu:99'"):
        with toolkit.device("gpu:99"):
            pass
    with pytest.raises(DeviceError, match="received 'tpu'"):
        toolkit.config.set_device("tpu")


def test_environment_selects_backend_device_and_dtype():
    code = "import toolkit; print(toolkit.config.backend(), toolkit.ops.ones(()).dtype)"
    process = run(code, TOOLKIT_BACKEND="reference", TOOLKIT_FLOATX="float64")
    assert process.stdout.split() == ["reference", "float64"], process.stderr
    process = run("import toolkit; toolkit.ops.ones(()) + 1", TOOLKIT_DEVICE="gpu:99")
    assert "gpu" in process.stderr.splitlines()[-1], process.stderr


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
    process = run(code, TOOLKIT_BACKEND="reference")
    assert process.returncode == 0, process.stderr


@pytest.fixture
def limits():
    yield toolkit.config
    toolkit.config.set_max_epochs(None)
    toolkit.config.set_max_steps_per_epoch(None)


def test_limits_of_epochs_and_steps(limits):
    model = toolkit.Sequential([toolkit.Input((1,)), toolkit.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 1)), np.ones((8, 1))
    assert limits.max_epochs() is None and limits.max_steps_per_epoch() is None
    limits.set_max_epochs(2)
    limits.set_max_steps_per_epoch(3)
    with pytest.warns(UserWarning, match="limits epochs to 2"):
        history = model.fit(x, y, batch_size=2, epochs=5, verbose=0)
    assert history.epoch == [0, 1] and int(model.optimizer.iterations) == 6
    assert history.params["steps"] == 3
    assert model.predict(x, batch_size=2, verbose=0).shape == (6, 1)
    with pytest.raises(ArgumentError, match="set_max_epochs: expected a number"):
        limits.set_max_epochs(0)


def test_limits_from_the_environment():
    code = "from toolkit import config; print(config.max_epochs())"
    assert run(code, TOOLKIT_MAX_EPOCHS="3").stdout == "3\n"
    assert "TOOLKIT_MAX_EPOCHS: expected" in run(code, TOOLKIT_MAX_EPOCHS="x").stderr


def test_names_of_other_frameworks():
    assert not toolkit.config.is_nnx_enabled()
    with pytest.raises(UnsupportedError, match="never runs code from a file"):
        toolkit.config.enable_unsafe_deserialization()


@pytest.mark.parametrize(
    "value, expected", [(None, 60.0), ("5", 5.0), ("0.25", 0.25), ("inf", float("inf"))]
)
def test_environment_sets_the_timeout(value, expected, monkeypatch):
    monkeypatch.delenv("TOOLKIT_TIMEOUT", raising=False)
    if value is not None:
        monkeypatch.setenv("TOOLKIT_TIMEOUT", value)
    assert settings.timeout(60.0) == expected


@pytest.mark.parametrize("value", ["", "0", "-1", "nan", "a minute"])
def test_invalid_timeout_is_refused(value, monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", value)
    with pytest.raises(ArgumentError, match="TOOLKIT_TIMEOUT: expected seconds"):
        settings.timeout(60.0)
