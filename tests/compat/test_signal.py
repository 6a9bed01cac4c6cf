"""Tests of transforms that TensorFlow lacks on CPUs, and of refused signals."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, ShapeError, UnsupportedError

X = np.random.default_rng(0).normal(size=(4, 5, 6))


@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 2), (2, 0, 1)])
def test_transforms_over_any_axes(axes):
    z = X + 1j * X[::-1]
    lengths = [X.shape[axis] + 1 for axis in axes]
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        function = getattr(tf.signal, f"{name}d")
        x = X if name[0] == "r" else z
        values = function(x, fft_length=lengths, axes=axes).numpy()
        expected = getattr(np.fft, name)(x, lengths, axes)
        np.testing.assert_allclose(values, expected, 1e-10, 1e-12)


def test_transforms_over_all_axes():
    np.testing.assert_allclose(tf.signal.fftnd(X + 0j), np.fft.fftn(X), 1e-10, 1e-12)
    np.testing.assert_allclose(tf.signal.rfftnd(X), np.fft.rfftn(X), 1e-10, 1e-12)


REFUSED = {
    "tf.signal.dct(X, type=5)": (ArgumentError, "dct: type"),
    "tf.signal.dct(X, type=1, norm='ortho')": (
        ArgumentError,
        "type 1 does not support a norm",
    ),
    "tf.signal.dct(X, type=1, n=1)": (ShapeError, "type 1 needs 2 elements"),
    "tf.signal.dct(X, norm='other')": (ArgumentError, "dct: norm"),
    "tf.signal.dct(X, n=0)": (ArgumentError, "expected n >= 1"),
    "tf.signal.dct(X, axis=0)": (UnsupportedError, "expected the axis -1"),
    "tf.signal.idct(3.0)": (ShapeError, "expected a tensor with axes"),
    "tf.signal.mdct(X, 6)": (ArgumentError, "a multiple of 4"),
    "tf.signal.inverse_mdct(X[:, :, :5])": (ShapeError, "an even last axis"),
    "tf.signal.inverse_stft(X, 4, 2)": (ArgumentError, "complex stfts"),
    "tf.signal.overlap_and_add([1.0, 2.0], 2)": (ShapeError, "overlap_and_add"),
    "tf.signal.overlap_and_add(X[:, :0], 2)": (ShapeError, "at least one frame"),
    "tf.signal.rfft2d(X, [4])": (ArgumentError, "expected 2 extents"),
    "tf.signal.fftnd(X, norm='ortho')": (ArgumentError, "norm: expected None"),
    "tf.signal.linear_to_mel_weight_matrix(upper_edge_hertz=9e3)": (
        ArgumentError,
        "upper_edge_hertz",
    ),
    "tf.signal.mfccs_from_log_mel_spectrograms(1.0)": (ShapeError, "expected bins"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refusals_name_the_argument(call):
    error, message = REFUSED[call]
    with pytest.raises(error, match=message):
        eval(call, {"tf": tf, "X": X})


def test_signal_is_reconstructed_from_its_frames():
    x = X.reshape(-1).astype("float32")
    window = tf.signal.inverse_stft_window_fn(4)
    spectrum = tf.signal.stft(x, 16, 4, pad_end=True)
    back = tf.signal.inverse_stft(spectrum, 16, 4, window_fn=window).numpy()
    np.testing.assert_allclose(back[16 : x.size], x[16:], 1e-4, 1e-5)
    back = tf.signal.inverse_mdct(tf.signal.mdct(x, 8)).numpy()
    np.testing.assert_allclose(back[4:-4], x[4:-4], 1e-4, 1e-5)


def test_matrix_functions_in_traces_of_large_norms():
    x = np.array([[0.0, 400.0], [-400.0, 0.0]])
    expected = [[np.cos(400), np.sin(400)], [-np.sin(400), np.cos(400)]]
    for function in (tf.linalg.expm, tf.function(tf.linalg.expm)):
        np.testing.assert_allclose(function(tf.constant(x)), expected, 1e-9)
