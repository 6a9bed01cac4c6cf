"""Test STFTSpectrogram and MelSpectrogram against NumPy's Fourier transform."""

import numpy as np
import pytest

from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError, DTypeError
from toolkit.initializers.fourier import window_of

X = np.random.default_rng(0).normal(size=(2, 100, 3))
EPSILON = 1e-7


def transforms(x, window, step, count):
    """Return (batch, channels, frames, frequencies) of x (batch, samples, channels)."""
    starts = range(0, x.shape[1] - len(window) + 1, step)
    frames = np.stack([x[:, i : i + len(window)] for i in starts], 1)
    return np.fft.rfft(np.moveaxis(frames, -1, 1) * window, count)


def psd(z):
    power = abs(z) ** 2
    power[..., 1:-1] *= 2
    return power


SHOWN = {
    "real": np.real,
    "imag": np.imag,
    "stft": lambda z: np.concatenate([z.real, z.imag], -1),
    "magnitude": abs,
    "log": lambda z: np.log(np.maximum(abs(z), EPSILON**0.5)),
    "psd": psd,
}


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("expand_dims", [False, True])
@pytest.mark.parametrize("mode", SHOWN)
def test_short_time_transforms(mode, expand_dims, data_format):
    layer = layers.STFTSpectrogram(
        mode, 16, 5, 32, expand_dims=expand_dims, data_format=data_format
    )
    window = window_of("hann", 16)
    window = window / np.sqrt((window**2).sum())
    expected = SHOWN[mode](transforms(X, window, 5, 32))
    if data_format == "channels_last":
        y = layer(X)
        expected = np.transpose(expected, (0, 2, 3, 1))
        if not expand_dims:
            expected = np.swapaxes(expected, 2, 3).reshape(*expected.shape[:2], -1)
    else:
        y = layer(np.swapaxes(X, 1, 2))
        if not expand_dims:
            expected = np.swapaxes(expected, 2, 3)
            expected = expected.reshape(len(X), -1, expected.shape[-1])
    assert_close(y, expected, factor=20)


def test_phases_and_padding():
    options = {"scaling": "spectrum", "window": None, "padding": "same"}
    layer = layers.STFTSpectrogram("angle", 16, 5, **options)
    padded = np.pad(X, ((0, 0), (5, 6), (0, 0)))
    z = transforms(padded, np.ones(16), 5, 16)
    y = np.moveaxis(layer(X).numpy().reshape(2, -1, 3, 9), 2, 1)
    assert y.shape == z.shape
    assert_close(np.cos(y - np.angle(z)), np.ones(y.shape), dtype="float32")


@pytest.mark.parametrize(
    "arguments",
    [
        {"frame_length": 8, "frame_step": 9},
        {"frame_step": 0},
        {"fft_length": 128},
        {"padding": "causal"},
        {"scaling": "l2"},
        {"mode": "power"},
        {"window": "unknown"},
    ],
)
def test_errors(arguments):
    with pytest.raises(ArgumentError, match=next(reversed(arguments))):
        layers.STFTSpectrogram(**arguments)


def test_integers_are_refused():
    with pytest.raises(DTypeError, match="Expected floats"):
        layers.STFTSpectrogram()(np.ones((1, 300, 1), "int32"))


def test_slow_lengths_warn():
    with pytest.warns(UserWarning, match="power of two"):
        layers.STFTSpectrogram(frame_length=8, fft_length=12)


@pytest.mark.parametrize("power_to_db", [False, True])
def test_mel_bands(power_to_db):
    layer = layers.MelSpectrogram(
        64, 20, 50, "hamming", 1000, 7, power_to_db=power_to_db, ref_power=2.0
    )
    x = X[..., 0]
    window = np.pad(window_of("hamming", 50, periodic=True), 7)
    padded = np.pad(x, ((0, 0), (32, 32)), mode="reflect")
    power = abs(transforms(padded[..., None], window, 20, 64)[:, 0]) ** 2
    expected = np.swapaxes(power @ bands(7, 33, 1000, 20, 500), 1, 2)
    if power_to_db:
        expected = 10 * np.log10(np.maximum(expected, 1e-10) / 2)
        expected = np.maximum(expected, expected.max() - 80)
    assert_close(layer(x), expected, factor=20)
    assert_close(layer(x[0]), layer(x[:1])[0])
    with pytest.raises(ArgumentError, match="`fft_length` must be greater than or"):
        layers.MelSpectrogram(64, sequence_length=65)


def bands(count, frequencies, rate, low, high):
    """Return triangles over the mel scale, one by one."""

    def mel(hertz):
        return 1127 * np.log(1 + hertz / 700)

    edges = np.linspace(mel(low), mel(high), count + 2)
    positions = mel(np.linspace(0, rate / 2, frequencies))
    y = [np.interp(positions, edges[i : i + 3], [0, 1, 0]) for i in range(count)]
    return np.stack(y, 1) * (positions > 0)[:, None]
